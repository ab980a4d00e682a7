"""The pages, made on the server: one module per page, what they share in `render` and `forms`, drawings as values.

A page is `render.page(request, "name.html", status=200, **values)`. Templates extend `base.html`, set `here` (the
entry of the navigation that is current: where, cloud, placements, plans, models, docs or empty) and have `caller`,
`signed_in` and `form_key`. Nothing is inline: a page's style and script are in `static/` (see api.http.envelope).

A form that changes something is a POST with `<input type="hidden" name="form_key" value="{{ form_key }}">`. Its
handler takes `form: Posted` (api.web.forms), the fields as a mapping, and is run only where one of our own pages sent
them in the session that is signed in; it ends with `render.see_other("/where/to/go")`. Its scope stands in the route,
as the API's does. `<pre class="copy">` gets a copy button.
"""
