# The service as an image: docker build --tag cotenant .
# It runs as nobody in particular and writes to /var/lib/cotenant and /tmp only, so a read-only root file system will do:
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -v cotenant:/var/lib/cotenant cotenant
# Base: any Debian with Python 3.11 and venv, e.g. the same pinned by its digest (--build-arg BASE=docker.io/library/python@sha256:...).
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
# What else than answers and plans the image can do: pyproject.toml says what each extra is for.
ARG EXTRAS=all
COPY packaging/locked locked
# Everything that is locked for the service is fetched and its hashes are checked; below it is taken from there.
# A package index of your own: --secret id=pip.conf,src=..., and where its certificate is your own, too, --secret id=ca.pem,src=...
# with `cert = /run/secrets/ca.pem` in that pip.conf. Both are there for this step and in no layer.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv /opt/cotenant \
 && /opt/cotenant/bin/pip wheel --no-deps --require-hashes --wheel-dir /wheels $(printf -- '--requirement %s ' locked/*.txt)
# What is compiled of Cotenant itself; nothing of this stage but the environment gets into the image.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE ./
COPY packaging/client packaging/client
COPY packaging/completions packaging/completions
COPY packaging/profiler packaging/profiler
COPY integrations integrations
COPY cotenant_client cotenant_client
COPY profiler profiler
COPY models models
COPY advisor advisor
COPY api api
RUN /opt/cotenant/bin/pip wheel --no-index --find-links /wheels --no-deps --wheel-dir /wheels ./packaging/client ./packaging/profiler $(dirname $(grep -l 'entry-points."cotenant' integrations/*/pyproject.toml)) . \
 && /opt/cotenant/bin/pip install --no-index --find-links /wheels "$(echo /wheels/cotenant-[0-9]*.whl)[$EXTRAS]" \
 && /opt/cotenant/bin/pip uninstall --yes pip

FROM ${BASE}
# LightGBM needs the system's OpenMP library.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 cotenant \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/cotenant --shell /usr/sbin/nologin cotenant \
 && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/cotenant
COPY --from=build /opt/cotenant /opt/cotenant
COPY datasets /usr/share/cotenant/datasets
ENV PATH=/opt/cotenant/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MPLCONFIGDIR=/tmp/matplotlib \
    COTENANT_DATABASE=sqlite:////var/lib/cotenant/cotenant.sqlite3 \
    COTENANT_STATE_DIR=/var/lib/cotenant \
    COTENANT_DATASETS_DIR=/usr/share/cotenant/datasets \
    COTENANT_LISTEN=0.0.0.0:8080
WORKDIR /var/lib/cotenant
VOLUME /var/lib/cotenant
EXPOSE 8080
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["cotenant"]
CMD ["serve"]
