//! Daemon `pmdaopenmetrics`.

fn main() -> std::process::ExitCode {
    if let Some(ended) = pmda_openmetrics::supervise(std::env::args_os()) {
        return ended;
    }
    // Documents of different lengths are read in turns by threads that come and go.
    pmapi::thread::share_heap();
    pmda::main::<pmda_openmetrics::Openmetrics>()
}
