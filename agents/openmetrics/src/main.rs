//! Daemon `pmdaopenmetrics`.

fn main() -> std::process::ExitCode {
    // Documents of different lengths are converted in turns by threads that come and go.
    pcp_base::thread::share_heap();
    pmda::main::<pmda_openmetrics::Openmetrics>()
}
