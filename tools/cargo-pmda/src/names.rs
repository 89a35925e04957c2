//! Names and domains of agents: validity, and which are taken.

use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::Path;

use pmapi::Config;

/// Names and domains of PCP's own agents.
const PCP: &str = include_str!("taken.txt");

/// Longest name of an agent, which is also that of a package, a library, a directory and a file.
const LONGEST: usize = 40;

/// Largest number of bytes that are read of a file.
const MOST: u64 = 1 << 20;

/// Domains that PCP leaves to agents that are not its own.
const FREE: RangeInclusive<u16> = 385..=510;

/// Names and domains of the agents of this project that PCP does not have.
const OURS: [(&str, u16); 3] = [("showcase", 402), ("derived", 404), ("replay", 405)];

/// Returns why a text is not the name of an agent.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !first || name.contains(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_') {
        return Err("an agent's name has lower-case letters, digits and _, and begins with a letter".to_owned());
    }
    if name.len() > LONGEST {
        return Err(format!("an agent's name has at most {LONGEST} characters"));
    }
    Ok(())
}

/// What has a name or a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An agent of PCP or of this host, which another may replace.
    Agent,
    /// Metrics of an agent of another name.
    Metrics,
    /// An agent in development, beside the new one.
    Neighbour,
}

/// A name or a domain that is taken.
#[derive(Debug)]
struct Entry {
    kind: Kind,
    name: String,
    domain: Option<u16>,
    /// Owner, which completes the sentence "the name x belongs to …".
    owner: String,
}

/// Names and domains that are taken, by PCP or on this host.
#[derive(Debug)]
pub(crate) struct Taken(Vec<Entry>);

impl Taken {
    /// Reads the names and domains in PCP's configuration of this host, in addition to the names and domains of PCP
    /// itself.
    pub(crate) fn load(config: &Config) -> Taken {
        let mut taken = Taken(Vec::new());
        taken.add_pcp();
        for (name, domain) in OURS {
            taken.add(name, Some(domain), format!("the agent {name} of pcp-rs"));
        }
        taken.add_pmcd_conf(&config.pmcdconf_path());
        for file in ["stdpmid.local", "stdpmid.pcp", "stdpmid"] {
            taken.add_stdpmid(&config.var_dir().join("pmns").join(file));
        }
        for entry in std::fs::read_dir(config.pmdas_dir()).into_iter().flatten().flatten() {
            let owner = format!("the agent in {}", entry.path().display());
            taken.add(&entry.file_name().to_string_lossy(), None, owner);
        }
        taken
    }

    /// Adds the domain of a neighbour, which completes the sentence "domain 444 belongs to …".
    pub(crate) fn add_domain(&mut self, domain: u16, owner: String) {
        self.0.push(Entry { kind: Kind::Neighbour, name: String::new(), domain: Some(domain), owner });
    }

    fn add(&mut self, name: &str, domain: Option<u16>, owner: String) {
        self.0.push(Entry { kind: Kind::Agent, name: name.to_lowercase(), domain, owner });
    }

    fn add_pcp(&mut self) {
        for line in PCP.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            for name in words {
                let domain = kind.parse().ok();
                let (kind, owner) = match kind {
                    "metrics" => (Kind::Metrics, format!("metrics of PCP, {name}.*")),
                    _ => (Kind::Agent, format!("PCP's agent {name}")),
                };
                self.0.push(Entry { kind, name: name.to_lowercase(), domain, owner });
            }
        }
    }

    /// Adds a file of `NAME DOMAIN` or `#define NAME DOMAIN` lines.
    fn add_stdpmid(&mut self, path: &Path) {
        for line in text(path).lines() {
            let line = line.strip_prefix("#define").unwrap_or(line);
            let mut words = line.split_whitespace();
            if let (Some(name), Some(Ok(domain))) = (words.next(), words.next().map(str::parse)) {
                self.add(name, Some(domain), format!("{name} in {}", path.display()));
            }
        }
    }

    /// Adds the agents of pmcd's configuration (pmcd(1)): `NAME DOMAIN TYPE …`.
    fn add_pmcd_conf(&mut self, path: &Path) {
        for line in text(path).lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(Ok(domain))) = (words.next(), words.next().map(str::parse)) {
                self.add(name, Some(domain), format!("the agent {name} in {}", path.display()));
            }
        }
    }

    /// Returns what uses a name, and a description of it. An agent comes before metrics of the same name.
    pub(crate) fn owner_of_name(&self, name: &str) -> Option<(Kind, &str)> {
        let owners = || self.0.iter().filter(|entry| entry.name == name);
        let owner = owners().find(|entry| entry.kind == Kind::Agent).or_else(|| owners().next());
        owner.map(|entry| (entry.kind, entry.owner.as_str()))
    }

    /// Returns what uses a domain, and a description of it. A neighbour comes before an installed agent.
    pub(crate) fn owner_of_domain(&self, domain: u16) -> Option<(Kind, &str)> {
        let owners = || self.0.iter().filter(|entry| entry.domain == Some(domain));
        let owner = owners().find(|entry| entry.kind == Kind::Neighbour).or_else(|| owners().next());
        owner.map(|entry| (entry.kind, entry.owner.as_str()))
    }

    /// Returns the domain of the agent of a name.
    pub(crate) fn domain_of(&self, name: &str) -> Option<u16> {
        self.0.iter().filter(|entry| entry.name == name).find_map(|entry| entry.domain)
    }

    /// Returns a free domain among those that PCP leaves to other agents. It depends on the agent's name, so that agents
    /// of different hosts rarely get the same one.
    pub(crate) fn free_domain(&self, name: &str) -> Option<u16> {
        let start = start(name);
        // From high to low, as PCP's documents want it, and then from the top again.
        let mut domains = (*FREE.start()..=start).rev().chain((start + 1..=*FREE.end()).rev());
        domains.find(|domain| self.owner_of_domain(*domain).is_none())
    }
}

/// Returns the domain at which the search for a free one begins: the hash FNV-1a of the agent's name.
fn start(name: &str) -> u16 {
    let hash = name.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // The low bits alone would depend on few bits of the name.
    let place = (hash ^ (hash >> 16)) % FREE.len() as u32;
    FREE.start() + place as u16
}

/// Returns the text of a file. It is empty if the file cannot be read.
pub(crate) fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    // If a file of PCP is missing or damaged, its names do not count as taken. A FIFO in a folder of others is not waited for.
    let _ = pcp_base::file::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["hello", "a", "my_disks_2", &"x".repeat(LONGEST)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "Hello", "2x", "_x", "a-b", "a.b", "a b", "a/b", "..", "ä", "a\n", &"x".repeat(LONGEST + 1)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_domains_of_pcp_and_of_the_host_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let var = dir.path().join("var");
        std::fs::create_dir_all(var.join("pmns")).unwrap();
        std::fs::create_dir_all(dir.path().join("pmdas/placed")).unwrap();
        std::fs::write(var.join("pmns/stdpmid.local"), "# a comment 508\nOURS\t510\n#EXAMPLE 509\n").unwrap();
        std::fs::write(var.join("pmns/stdpmid"), "#define THEIRS 508\n#define X\n\u{0}\u{1f} x\n").unwrap();
        let conf = dir.path().join("pmcd.conf");
        std::fs::write(&conf, "# c 507\nlive\t509\tpipe\tbinary\t/bin/true\n[access]\nallow x : all;\n").unwrap();
        let place = |name: &str, path: &Path| (name.into(), path.as_os_str().to_owned());
        let places = [
            place("PCP_VAR_DIR", &var),
            place("PCP_PMCDCONF_PATH", &conf),
            place("PCP_PMDAS_DIR", &dir.path().join("pmdas")),
        ];
        let taken = Taken::load(&Config::new(b"", places));
        let occupied = [508, 509, 510];
        assert!(occupied.iter().all(|domain| taken.owner_of_domain(*domain).is_some()));
        for n in 0..1000 {
            let domain = taken.free_domain(&format!("agent{n}")).unwrap();
            assert!(FREE.contains(&domain) && !occupied.contains(&domain), "{domain}");
        }
        assert_eq!(taken.owner_of_domain(60), Some((Kind::Agent, "PCP's agent linux")));
        assert_eq!(taken.owner_of_name("linux"), Some((Kind::Agent, "PCP's agent linux")));
        assert_eq!(taken.owner_of_name("kernel"), Some((Kind::Metrics, "metrics of PCP, kernel.*")));
        let live = format!("the agent live in {}", conf.display());
        assert_eq!(taken.owner_of_name("live"), Some((Kind::Agent, live.as_str())));
        assert_eq!(
            (taken.domain_of("linux"), taken.domain_of("live"), taken.domain_of("kernel")),
            (Some(60), Some(509), None)
        );
        for name in ["ours", "theirs", "placed", "nvidia", "showcase"] {
            assert!(taken.owner_of_name(name).is_some(), "{name}");
        }
        assert_eq!((taken.owner_of_name("hello"), taken.owner_of_domain(507)), (None, None));
    }

    #[test]
    fn domains_depend_on_the_name_and_are_spread() {
        let mut taken = Taken(Vec::new());
        assert_eq!(taken.free_domain("hello"), taken.free_domain("hello"));
        let mut uses = [0_u32; 126];
        for n in 0..1260 {
            let name = format!("{}agent{n}", ["my_", "", "disk"][n % 3]);
            uses[usize::from(taken.free_domain(&name).unwrap() - FREE.start())] += 1;
        }
        assert!(uses.iter().all(|uses| (1..=30).contains(uses)), "{uses:?}");
        // With one agent for each domain, all of them are found, and then none.
        for _ in FREE {
            let domain = taken.free_domain("hello").unwrap();
            taken.add("x", Some(domain), "another".to_owned());
        }
        assert_eq!(taken.free_domain("hello"), None);
    }
}
