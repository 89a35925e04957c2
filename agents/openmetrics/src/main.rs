//! Daemon `pmdaopenmetrics`, and its option `--check`.

fn main() -> std::process::ExitCode {
    if let Some(ended) = pmda_openmetrics::supervise(std::env::args_os()) {
        return ended;
    }
    // Documents of different lengths are read in turns by threads that come and go.
    pmapi::thread::share_heap();
    let args = pmda_openmetrics::of_pcp(std::env::args_os());
    if let Some(ended) = pmda_openmetrics::check(args.clone()) {
        return ended;
    }
    pmda::run::<pmda_openmetrics::Openmetrics>(args)
}
