//! Usage messages of the commands. `--help` and mistakes print them, and the man pages come from them.

/// Usage message of `chkhelp`.
pub const CHKHELP: &str = "\
Usage: chkhelp helpfile
       chkhelp [options] helpfile [metricname ...]

Options:
  -e           list the metrics without help text
  -H           print the long texts
  -i           print the texts of all instance domains
  -n pmnsfile  file with the name space
  -O           print the one-line texts
  -p           print the texts of all metrics
  -v version   version of the format, which is always 2

Without options, checks the file and prints nothing if it is valid.
";

/// Usage message of `newhelp`.
pub const NEWHELP: &str = "\
Usage: newhelp [options] [file ...]

General options:
  -n FILE, --namespace=FILE
                        file with the name space
  -?, --help            print this text

Output options:
  -o FILE, --output=FILE
                        name of the output files, without extensions
  -V, --verbose         print the name of each entry, and warnings
  -v N, --version=N     version of the format, which is always 2
";

/// Usage message of `pmnsdel`.
pub const PMNSDEL: &str = "\
Usage: pmnsdel [options] metricpath [...]

Options:
  -n FILE, --namespace=FILE
                        file with the name space
  -?, --help            print this text
";

/// Usage message of `pmnsmerge`.
pub const PMNSMERGE: &str = "\
Usage: pmnsmerge [options] infile [...] outfile

Options:
  -a                    merge the files in this order, whatever their _DATESTAMP
  -d, --dupok           accept several names for one PMID (the default)
  -f, --force           replace an output file that exists
  -x, --nodups          refuse several names for one PMID
  -v, --verbose         print the name of each input file
  -?, --help            print this text
";

/// Usage message of `pmnsadd`.
pub const PMNSADD: &str = "Usage: pmnsadd [-d] [-n namespace] file\n";

/// Usage message of `pmgenmap`.
pub const PMGENMAP: &str = "Usage: pmgenmap [infile]\n";
