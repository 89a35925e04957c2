//! The sources of agent openmetrics: most are read at an interval, so that fetches are answered from samples, while
//! others come, go, change and hang.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use pmapi::Type;

use crate::Outcome;
use crate::host::{Host, Scene};
use crate::openmetrics::servers;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;

/// Sources with values that are known, and sources that hang.
pub(super) struct Sources {
    scene: Scene,
    port: u16,
    /// A server that never accepts: the system completes connections, but nothing answers.
    _silent: TcpListener,
}

/// Number of answers of hostile servers. It is small, so that the agent has seen all their metrics after some time.
const HOSTILE: usize = 8;

impl Sources {
    /// Writes the permanent sources. Their numbers follow from the order of their names, of which `honest` is the
    /// first.
    pub(super) fn new(scene: &Scene) -> Outcome<Sources> {
        let port = scene.trace_port + 5;
        servers::start(port)?;
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let hung = silent.local_addr()?;
        let sources = Sources { scene: scene.clone(), port, _silent: silent };
        let honest = scene.dir().join("honest.txt");
        sources.url("honest", &format!("file://{}\nINTERVAL: 100msec\n", honest.display()))?;
        sources.url("hung", &format!("http://{hung}/\nINTERVAL: 1sec\nTIMEOUT: 300msec\nBACKOFF: 1sec\n"))?;
        sources.script("stuck", "#!/bin/sh\nexec sleep 100\n", "INTERVAL: 2sec\nTIMEOUT: 300msec\nBACKOFF: 1sec\n")?;
        sources.url("web", &format!("http://127.0.0.1:{port}/honest\nINTERVAL: 200msec\nTIMEOUT: 20sec\n"))?;
        sources.script("work", "#!/bin/sh\necho count 5\n", "INTERVAL: 1sec\nTIMEOUT: 20sec\n")?;
        Ok(sources)
    }

    /// Returns fetches of values that stay the same.
    pub(super) fn probes(host: &mut dyn Host) -> Outcome<Vec<Probe>> {
        let known = [("openmetrics.web.count", 12_345.0), ("openmetrics.work.count", 5.0)];
        let probe = |(name, value): (&str, f64)| {
            let pmid = Probe::lookup_when_bound(&mut *host, name)?;
            Probe::default().fetch(pmid, Answer::Number(Type::Double, value))
        };
        known.into_iter().map(probe).collect()
    }

    /// Adds, removes or changes a source: a file, or a hostile server.
    pub(super) fn change(&self, rng: &mut Rng) -> Outcome {
        if rng.one_in(4) {
            let path = rng.below(HOSTILE);
            let text =
                format!("http://127.0.0.1:{}/{path}\nINTERVAL: 1sec\nTIMEOUT: 300msec\nBYTES: 100000\n", self.port);
            return self.come_or_go(rng, "hostile", &text);
        }
        let n = rng.below(3);
        let document = self.scene.dir().join(format!("s{n}.txt"));
        let rows: String = (0..rng.below(40)).map(|row| format!("rows{{n=\"{}\"}} {row}\n", row + n)).collect();
        fs::write(&document, format!("count {}\n{rows}", rng.below(100)))?;
        // The last one is read for each fetch of its metrics.
        let interval = if n < 2 { "INTERVAL: 50msec\n" } else { "" };
        self.come_or_go(rng, &format!("s{n}"), &format!("file://{}\n{interval}", document.display()))
    }

    fn come_or_go(&self, rng: &mut Rng, name: &str, text: &str) -> Outcome {
        let path = self.path(name, ".url");
        if rng.one_in(4) && path.exists() {
            return Ok(fs::remove_file(path)?);
        }
        self.url(name, text)
    }

    fn path(&self, name: &str, end: &str) -> PathBuf {
        self.scene.config().join(format!("{name}{end}"))
    }

    fn url(&self, name: &str, text: &str) -> Outcome {
        Ok(fs::write(self.path(name, ".url"), text)?)
    }

    fn script(&self, name: &str, text: &str, rules: &str) -> Outcome {
        fs::write(self.path(name, ".conf"), rules)?;
        let path = self.path(name, ".sh");
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
    }
}
