//! Usage message.

/// Usage message of `dbpmda`. `--help` and mistakes print it, and the man page comes from it.
pub const USAGE: &str = "\
Usage: dbpmda [options]

Options:
  -n FILE, --namespace=FILE
                        read the names of metrics from this file
  -f, --norc            do not read .dbpmdarc
  -q N, --creds-timeout=N
                        seconds to wait until an agent begins the version exchange
  -U USER, --username=USER
                        run as this user
  -v, --valgrind        keep shared objects loaded
  -?, --help            print this text

Input options:
  -e, --echo-input      echo the input
  -i, --interactive     prompt even if the input is not a terminal

The command \"dbpmda check AGENT...\" checks an agent against the rules of PCP.
";
