#!/bin/sh
# A copy of a store, of a running service's too, checked; the newest KEEP copies stay (7 unless set).
#
#   backup.sh STORE FOLDER [--files DIR]
#
# Every night: systemd-run --on-calendar=daily --uid=taps /usr/local/bin/backup.sh /var/lib/taps /var/backups/taps
# To go back: stop the service, and start it with the copy: taps serve --store FOLDER/2030-01-31T020000Z
set -eu
store=${1:?usage: backup.sh STORE FOLDER [--files DIR]}
folder=${2:?usage: backup.sh STORE FOLDER [--files DIR]}
shift 2
copy=$folder/$(date -u +%Y-%m-%dT%H%M%SZ)
mkdir -p "$folder"
taps backup "$store" "$copy.part" "$@"
taps doctor "$copy.part"
mv "$copy.part" "$copy"
# Names are dates, so the order of names is that of time. One that broke off is no copy, and goes.
find "$folder" -mindepth 1 -maxdepth 1 -name '*.part' -exec rm -rf {} +
find "$folder" -mindepth 1 -maxdepth 1 -name '20*Z' | sort -r | tail -n +$((${KEEP:-7} + 1)) | xargs -r rm -rf
echo "$copy"
