//! Usage message.

/// Usage message of `pmdumplog`. `--help` and mistakes print it, and the man page comes from it.
pub(crate) const USAGE: &str = "\
Usage: pmdumplog [options] [archive [metricname ...]]

Options:
  -a, --all             all but labels and help texts: -d -i -L -m -s -t
  -d, --descs           descriptors of the metrics
  -e, --labelsets       labels
  -h, --helptext        help texts
  -I, --on-disk-insts   records of instance domains as they are in the file
  -i, --insts           instance domains
  -L                    label with all its fields
  -l, --label           label
  -M, --markrecs        <mark> records even if metrics are named
  -m, --metrics         values (default)
  -n FILE, --namespace=FILE
                        name space to use in place of the archive's
  -r, --reverse         values from the end to the start
  -S TIME, --start=TIME time of the first record to show
  -s, --sizes           length of each record in bytes
  -T TIME, --finish=TIME
                        time of the last record to show
  -t                    temporal index
  -v FILE               hexadecimal dump of one file
  -x                    times with date; -xx: with offset from the start; -xxx: with seconds since the epoch
  -Z TZ, --timezone=TZ  time zone of all times
  -z, --hostzone        time zone of the recorded host
  --check               check of each named archive, as pmlogcheck(1) does; exit code 1 if a reader would fail
  --metadataonly        with --check: not the values
  --nowrap              with --check: not the counters that went back
  -V, --version         version number
  -?, --help            this text
";
