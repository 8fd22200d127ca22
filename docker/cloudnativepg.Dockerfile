# The extension for CloudNativePG, as an image volume of PostgreSQL 18, which has only files. Build it in the project's folder:
#
#   docker build -f docker/cloudnativepg.Dockerfile -t dbdp-extension:18 .
#
# EXTENSION is the extension's name in the Cluster, and thereby its place in the pods, /extensions/EXTENSION. The base
# must have the Python of the operand image, which must have PL/Python: see docs/packaging.md.

ARG BASE=debian:forky-slim

FROM ${BASE} AS build
USER 0
RUN apt-get update --quiet=2 \
 && DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet=2 --yes --no-install-recommends gcc libc6-dev make python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
ARG PIP_INDEX_URL
ENV PIP_QUIET=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY docker/requirements.txt docker/build-requirements.txt /locks/
RUN python3 -m venv /build \
 && /build/bin/pip install --only-binary :all: --require-hashes -r /locks/build-requirements.txt \
 && /build/bin/pip install --only-binary :all: --require-hashes -r /locks/requirements.txt
COPY . /source
ARG EXTENSION=dbdp
RUN make -C /source install PYTHON=/build/bin/python SHAREDIR="/extensions/$EXTENSION/share" DESTDIR=/laid \
 && mv "/laid/extensions/$EXTENSION" /image \
 && install -d /image/lib /image/licenses/dbdp && cp /source/LICENSE /image/licenses/dbdp/

FROM scratch
LABEL org.opencontainers.image.title="dbdp-extension" \
      org.opencontainers.image.description="Differentially private machine learning inside PostgreSQL, for CloudNativePG" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
USER 65532:65532
