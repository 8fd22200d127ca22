# pg_upgrade from one image's PostgreSQL to a later one's, see docs/docker.md. Nothing is downloaded: the former programs,
# and the libraries of theirs that the later Debian lacks, come from the former image.
ARG FORMER=dbdp:15
ARG LATER=dbdp:17

FROM ${FORMER} AS former
USER root
RUN mkdir /libraries \
 && ldd /usr/lib/postgresql/*/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | xargs cp --dereference --target-directory /libraries

FROM ${LATER}
USER root
COPY --from=former /usr/lib/postgresql /former/postgresql
COPY --from=former /usr/share/postgresql /former/share
COPY --from=former /libraries /former/libraries
# Programs find their files beside them, in folders of the version's name.
RUN major=$(basename "$(dirname "$(readlink --canonicalize-missing /former/postgresql/bin)")") \
 && mv "/former/postgresql/$major" /usr/lib/postgresql/ \
 && mv "/former/share/$major" /usr/share/postgresql/ \
 && rm -r "/usr/share/postgresql/$major/dbdp" \
 && ln -s "/usr/lib/postgresql/$major/bin" /former/bin \
 && for library in /former/libraries/*; do ! ldconfig -p | grep -q "/$(basename "$library")\$" || rm "$library"; done \
 && echo /former/libraries > /etc/ld.so.conf.d/former.conf && ldconfig \
 && install -d -o postgres -g postgres -m 0700 /var/lib/postgresql/former
COPY docker/upgrade.sh /usr/local/bin/upgrade.sh
USER 999:999
HEALTHCHECK NONE
CMD ["upgrade.sh"]
