//! The list of agents of a local context.

use std::path::{Path, PathBuf};

use pcp_base::file;
use pmapi::{Config, Domain};

/// Shared object of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LocalAgent {
    /// Domain of the agent's metrics.
    pub domain: Domain,
    /// Path of the file: absolute, or relative to `$PCP_PMDAS_DIR`. A path that begins with `./` or `../` is relative
    /// to the current directory. The suffix `.so` may be left out.
    pub path: PathBuf,
    /// Name of the entry point.
    pub init: String,
}

/// Agents of a local context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalAgents {
    list: Vec<LocalAgent>,
    pmdas: PathBuf,
    pub(super) names: PathBuf,
    /// Directory of the files that the name space includes.
    pub(super) includes: PathBuf,
    /// Program that serves each agent in a process of its own.
    pub(crate) host: Option<PathBuf>,
}

/// Why a text does not change the list of agents.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalSpecError {
    /// First field other than `add`, `del` and `clear`.
    #[error("{0:?}: the operation must be add, del or clear")]
    Operation(String),
    /// Domain that is not a number from 1 to 510.
    #[error("{0:?}: the domain must be a number from 1 to 510")]
    Domain(String),
    /// Field that is missing.
    #[error("{spec:?}: there is no {field}")]
    Missing {
        /// The whole specification.
        spec: String,
        /// Missing field.
        field: &'static str,
    },
    /// More than four fields.
    #[error("{0:?}: there are more than four fields")]
    Extra(String),
}

/// Largest domain of an agent.
const MAX_DOMAIN: u16 = 510;

fn domain(text: &str) -> Option<Domain> {
    let number = text.parse().ok().filter(|number| (1..=MAX_DOMAIN).contains(number))?;
    Domain::new(number)
}

impl LocalAgents {
    /// Creates a list without agents, whose names are those of `$PMNS_DEFAULT` or `$PCP_VAR_DIR/pmns/root`.
    pub fn empty(config: &Config) -> LocalAgents {
        let names = config.var("PMNS_DEFAULT").map_or_else(|| config.var_dir().join("pmns/root"), PathBuf::from);
        LocalAgents {
            list: Vec::new(),
            pmdas: config.pmdas_dir(),
            names,
            includes: config.var_dir().join("pmns"),
            host: None,
        }
    }

    /// Reads the lines with `dso` of `pmcd.conf`, or of the file in `$PCP_PMCDCONF_PATH`. As in libpcp, agent `pmcd` is
    /// left out, because it works only in pmcd, and `linux` and `proc` are shared objects, whatever their lines specify.
    ///
    /// # Errors
    /// The error of the system if the file cannot be read.
    pub fn configured(config: &Config) -> std::io::Result<LocalAgents> {
        let mut agents = LocalAgents::empty(config);
        agents.read(&config.pmcdconf_path())?;
        Ok(agents)
    }

    /// Reads `local.conf` of PCP 7.2 and later, in `$PCP_SYSCONF_DIR`: a short list of shared objects for local contexts,
    /// in the form of `pmcd.conf`. They need no pmcd on the host. Unless `$PMNS_DEFAULT` is set, the names are those of
    /// `$PCP_VAR_DIR/pmns/local.root`. In libpcp, both variables have to be set to these files (pcpintro(1)).
    ///
    /// # Errors
    /// The error of the system if the file cannot be read, `NotFound` with an older PCP.
    pub fn local(config: &Config) -> std::io::Result<LocalAgents> {
        let mut agents = LocalAgents::empty(config);
        if config.var("PMNS_DEFAULT").is_none() {
            agents.set_names(config.var_dir().join("pmns/local.root"));
        }
        agents.read(&config.sysconf_dir().join("local.conf"))?;
        Ok(agents)
    }

    fn read(&mut self, path: &Path) -> std::io::Result<()> {
        self.add_lines(&String::from_utf8_lossy(&file::read(path, file::TEXT_LIMIT)?));
        Ok(())
    }

    fn add_lines(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !name.starts_with("pmcd")) else { continue };
            let (number, path, init) = match name {
                _ if name.starts_with("linux") => ("60", "linux/pmda_linux.so", "linux_init"),
                _ if name.starts_with("proc") => ("3", "proc/pmda_proc.so", "proc_init"),
                _ => match (words.next(), words.next(), words.next(), words.next()) {
                    (Some(domain), Some("dso"), Some(init), Some(path)) => (domain, path, init),
                    _ => continue,
                },
            };
            if let Some(domain) = domain(number) {
                self.add(LocalAgent { domain, path: path.into(), init: init.to_owned() });
            }
        }
    }

    /// Adds an agent. Replaces an agent with the same domain.
    pub fn add(&mut self, agent: LocalAgent) {
        self.list.retain(|other| other.domain != agent.domain);
        self.list.push(agent);
    }

    /// Changes the list as option `-K` of PCP's commands does (pmSpecLocalPMDA(3)):
    ///
    /// ```text
    /// add,DOMAIN,PATH,INIT    del,DOMAIN    del,,PATH    del,DOMAIN,PATH    clear
    /// ```
    ///
    /// # Errors
    /// [`LocalSpecError`] for any other text, which leaves the list unchanged.
    pub fn specify(&mut self, spec: &str) -> Result<(), LocalSpecError> {
        let mut fields = spec.split(',');
        let operation = fields.next().unwrap_or_default();
        let mut next = || fields.next().filter(|field| !field.is_empty());
        let (number, path, init) = (next(), next(), next());
        if fields.next().is_some() {
            return Err(LocalSpecError::Extra(spec.to_owned()));
        }
        let known =
            number.map(|text| domain(text).ok_or_else(|| LocalSpecError::Domain(text.to_owned()))).transpose()?;
        let missing = |field| LocalSpecError::Missing { spec: spec.to_owned(), field };
        match operation {
            "clear" => self.list.clear(),
            "add" => {
                let domain = known.ok_or_else(|| missing("domain"))?;
                let path = path.ok_or_else(|| missing("path"))?.into();
                let init = init.ok_or_else(|| missing("entry point"))?.to_owned();
                self.add(LocalAgent { domain, path, init });
            }
            "del" if known.is_none() && path.is_none() => return Err(missing("domain or path")),
            "del" => {
                self.list.retain(|agent| {
                    known != Some(agent.domain) && path.is_none_or(|path| agent.path != Path::new(path))
                });
            }
            other => return Err(LocalSpecError::Operation(other.to_owned())),
        }
        Ok(())
    }

    /// Sets the file with the names of the metrics, in the form of PMNS(5).
    pub fn set_names(&mut self, path: impl Into<PathBuf>) {
        self.names = path.into();
    }

    /// Iterates over the agents.
    pub fn iter(&self) -> impl Iterator<Item = &LocalAgent> {
        self.list.iter()
    }

    /// Returns the file of an agent: its path, or the path with the suffix `.so` if only that exists. Unlike libpcp,
    /// this does not look in the current directory first, where another user may have put a file.
    pub(super) fn file(&self, agent: &LocalAgent) -> PathBuf {
        let path = if agent.path.starts_with(".") || agent.path.starts_with("..") {
            agent.path.clone()
        } else {
            self.pmdas.join(&agent.path)
        };
        let with_suffix = PathBuf::from(format!("{}.so", path.display()));
        if !path.is_file() && with_suffix.is_file() { with_suffix } else { path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> LocalAgents {
        LocalAgents::empty(&Config::new(b"PCP_VAR_DIR=/v\nPCP_PMDAS_DIR=/p\n", []))
    }

    fn shown(agents: &LocalAgents) -> Vec<String> {
        let show = |a: &LocalAgent| format!("{} {} {}", a.domain.get(), a.path.display(), a.init);
        agents.iter().map(show).collect()
    }

    #[test]
    fn lines_of_pmcd() {
        let mut agents = agents();
        agents.add_lines(
            "# mmv 70 dso mmv_init /x.so\npmcd 2 dso pmcd_init /p/pmcd/pmda_pmcd.so\nlinux 60 pipe binary /p/linux/pmdalinux\n\
             mmv\t70\tdso\tmmv_init\t/p/mmv/pmda_mmv.so \nproc 3 pipe binary /p/proc\nbad x dso a b\nworse 511 dso a b\n\
             short 5 dso a\n\n[access]\ndisallow .* : store;\n",
        );
        assert_eq!(
            shown(&agents),
            ["60 linux/pmda_linux.so linux_init", "70 /p/mmv/pmda_mmv.so mmv_init", "3 proc/pmda_proc.so proc_init"]
        );
        assert_eq!(agents.names, Path::new("/v/pmns/root"));
    }

    #[test]
    fn lists_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.conf");
        std::fs::write(&path, "mmv\t70\tdso\tmmv_init\tmmv/pmda_mmv.so\nxfs 11 dso xfs_init /p/xfs/pmda_xfs.so\n")
            .unwrap();
        let text = format!("PCP_VAR_DIR=/v\nPCP_SYSCONF_DIR={}\n", dir.path().display());
        let config = |env: &[(&str, &Path)]| {
            let env = env.iter().map(|(name, value)| ((*name).into(), value.as_os_str().to_owned()));
            Config::new(text.as_bytes(), env.collect::<Vec<_>>())
        };
        let found = LocalAgents::local(&config(&[])).unwrap();
        assert_eq!(shown(&found), ["70 mmv/pmda_mmv.so mmv_init", "11 /p/xfs/pmda_xfs.so xfs_init"]);
        assert_eq!(found.names, Path::new("/v/pmns/local.root"));
        // As in libpcp, variables of the environment name the same files.
        let names = Path::new("/v/pmns/local.root");
        let set = config(&[("PCP_PMCDCONF_PATH", &path), ("PMNS_DEFAULT", names)]);
        assert_eq!(LocalAgents::configured(&set).unwrap(), found);
        assert_eq!(LocalAgents::local(&config(&[("PMNS_DEFAULT", Path::new("/x"))])).unwrap().names, Path::new("/x"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(LocalAgents::local(&config(&[])).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert!(LocalAgents::configured(&config(&[])).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        /// Any text is a valid change, or a mistake with a message of one line. Any configuration has at most one agent
        /// for each line.
        #[test]
        fn any_text(spec in "(add|del|clear|x)?(,[0-9a-z/ ]{0,4}){0,5}|\\PC{0,20}", conf in "(a|linux|pmcd|#|[0-9 ]|dso |\\n){0,40}") {
            let mut agents = agents();
            if let Err(e) = agents.specify(&spec) {
                proptest::prop_assert_eq!(e.to_string().lines().count(), 1);
                proptest::prop_assert_eq!(agents.iter().count(), 0);
            }
            agents.add_lines(&conf);
            proptest::prop_assert!(agents.iter().count() <= conf.lines().count() + 1);
        }
    }

    #[test]
    fn files_are_not_those_of_the_current_directory() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(format!("PCP_PMDAS_DIR={}\n", dir.path().display()).as_bytes(), []);
        let file = |path: &str| {
            let mut agents = LocalAgents::empty(&config);
            agents.specify(&format!("add,1,{path},init")).unwrap();
            agents.iter().map(|agent| agents.file(agent)).next().unwrap()
        };
        // A file of this name exists in the current directory of tests.
        assert_eq!(file("Cargo.toml"), dir.path().join("Cargo.toml"));
        assert_eq!(file("./Cargo.toml"), Path::new("./Cargo.toml"));
        std::fs::write(dir.path().join("own.so"), "").unwrap();
        assert_eq!(file("own"), dir.path().join("own.so"));
        assert_eq!(file("/x/own"), Path::new("/x/own"));
    }

    #[test]
    fn specifications() {
        let mut agents = agents();
        agents.specify("add,123,foo/pmda_foo,foo_init").unwrap();
        agents.specify("add,124,bar,bar_init").unwrap();
        agents.specify("add,124,bar,other_init").unwrap();
        assert_eq!(shown(&agents), ["123 foo/pmda_foo foo_init", "124 bar other_init"]);
        agents.specify("del,,bar").unwrap();
        agents.specify("del,123").unwrap();
        assert!(shown(&agents).is_empty());
        agents.specify("clear").unwrap();
        for spec in [
            "",
            "add",
            "add,5",
            "add,5,x",
            "add,x,y,z",
            "add,0,y,z",
            "add,511,y,z",
            "del",
            "del,,",
            "x,1",
            "add,1,2,3,4",
        ] {
            let error = agents.specify(spec).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!(shown(&agents).is_empty());
    }
}
