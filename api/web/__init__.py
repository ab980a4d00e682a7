"""The pages, made on the server: one module per page. What they share is in `api.html.render` and `forms`.

A handler ends with `render.page(request, "name.html", status=200, **values)`. Templates extend `base.html` and set
`here`, the current entry of the navigation: where, cloud, placements, plans, models, docs or empty. They have
`caller`, `signed_in` and `form_key`. No style and no script is inline: they are in `static/` (see api.http.envelope).

A form that changes something is a POST with `<input type="hidden" name="form_key" value="{{ form_key }}">`. Its
handler takes `form: Posted` (api.web.signing), a mapping of the fields. It runs only where one of our own pages sent
the form in the session that is signed in, and ends with `render.see_other("/where/to/go")`. The route says which scope
it needs, as for the API. `<pre class="copy">` gets a copy button.
"""
