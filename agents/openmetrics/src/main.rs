//! Daemon `pmdaopenmetrics`, and its option `--check`.

fn main() -> std::process::ExitCode {
    let args = pmda_openmetrics::of_pcp(std::env::args_os());
    if let Some(ended) = pmda_openmetrics::check(args.clone()) {
        return ended;
    }
    pmda::run::<pmda_openmetrics::Openmetrics>(args)
}
