//! Agent `spool`: the files of a directory, which the administrator names in a configuration file. The files come and go,
//! and a thread counts their lines, because that may take long.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use pmda::PollSet;
use pmda::prelude::*;
use pmda::tracing::warn;

/// A file, as the thread has found it.
#[derive(Clone, Copy, Debug)]
struct File {
    size: u64,
    lines: usize,
    changed: SystemTime,
}

struct Spool {
    conf: ConfigFile,
    dir: PathBuf,
    scan: Background<Vec<(String, File)>>,
    files: Table<File>,
}

impl Agent for Spool {
    const NAME: &'static str = "spool";
    const DOMAIN: u16 = 466;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.not_ready();
        setup.labels(json!({"role": "spool"}));
        let dir = setup.discrete("spool.dir", Item::new(0, 0), |spool: &Self| spool.dir.display().to_string());
        dir.help("Directory of the files", "spool.conf names it.");
        let age = setup.gauge("spool.age", Item::new(0, 1), |spool: &Self| spool.scan.age()).units(Units::SECONDS);
        age.help("Time since the directory was read", "A thread reads it every ten seconds.");
        let mut files = setup.table(Serial::new(0), |spool: &Self| &spool.files).whole_names().persistent();
        files.help("Files", "The files of the directory, by their names. A name keeps its number.");
        let count = files.total("spool.files", Item::new(0, 2), |files| files.active_len());
        count.help("Number of files", "In spool.dir.");
        let all = files.total("spool.bytes", Item::new(0, 3), |files| files.values().map(|(_, f)| f.size).sum::<u64>());
        all.units(Units::BYTES).help("Size of all files", "The sum of spool.file.size.");
        let size = files.gauge("spool.file.size", Item::new(1, 0), |file| file.size).units(Units::BYTES);
        size.help("Size of the file", "Without holes or blocks.");
        let age = files.gauge("spool.file.age", Item::new(1, 1), |file| file.changed.elapsed().ok());
        age.units(Units::SECONDS).help("Time since the last change", "A file from the future has no value.");
        let lines = files.gauge("spool.file.lines", Item::new(1, 2), |file| file.lines).units(Units::COUNT);
        lines.help("Lines of the file", "Counted when the directory was read.");
        let files = files.finish(setup);
        let mut conf = setup.configuration("spool.conf", "# The directory whose files are shown.\ndir /var/spool\n");
        let dir = directory(&mut conf).ok_or("no directory")?;
        Ok(Spool { conf, scan: watch(dir.clone())?, dir, files })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Some(dir) = directory(&mut self.conf) {
            // The thread of the other directory ends.
            self.scan = watch(dir.clone())?;
            self.dir = dir;
        }
        self.files.refresh(request, |rows| {
            self.scan.latest()?.iter().for_each(|(name, file)| _ = rows.add(name, *file));
            Ok(())
        });
        Ok(())
    }

    fn instance_labels(&self, _: Serial, inst: Inst) -> Result<LabelSet> {
        let kind = self.files.instance(inst).and_then(|file| Path::new(file.name).extension()?.to_str());
        kind.map_or(Ok(LabelSet::new()), |kind| Ok(LabelSet::from_serialize(json!({"kind": kind}))?))
    }

    fn is_ready(&self) -> bool {
        self.scan.is_ready()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.first_snapshot(&self.scan);
    }
}

/// Returns the directory if the configuration file has changed. After a mistake in it, the directory stays.
fn directory(conf: &mut ConfigFile) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(&conf.changed()?.unwrap_or_default()).into_owned();
    let dir = text.lines().find_map(|line| Some(PathBuf::from(line.strip_prefix("dir ")?.trim())));
    if dir.is_none() {
        warn!("{}: no line \"dir PATH\"", conf.path().display());
    }
    dir
}

/// Starts a thread that reads a directory every ten seconds.
fn watch(dir: PathBuf) -> io::Result<Background<Vec<(String, File)>>> {
    Ok(Background::spawn(Duration::from_secs(10), move || Ok(scan(&dir)?))?.named("spool"))
}

/// Reads a directory. Files that cannot be read are left out.
fn scan(dir: &Path) -> io::Result<Vec<(String, File)>> {
    let file = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let lines = BufReader::new(fs::File::open(entry.path()).ok()?).split(b'\n').map_while(|line| line.ok()).count();
        let file = File { size: metadata.len(), lines, changed: metadata.modified().ok()? };
        Some((entry.file_name().to_string_lossy().into_owned(), file))
    };
    Ok(fs::read_dir(dir)?.flatten().filter_map(file).collect())
}

pmda::main!(Spool);

#[cfg(test)]
mod tests {
    use pcp_collector::{Collector, Local};
    use pmda::host::Engine;
    use pmda::pmapi::Config;

    use super::*;

    #[test]
    fn files_come_and_go_and_the_directory_can_change() {
        let host = tempfile::tempdir().unwrap();
        let path = |name: &str| host.path().join(name);
        for dir in ["pmdaspool", "one", "two"] {
            fs::create_dir(path(dir)).unwrap();
        }
        let configure =
            |dir| fs::write(path("pmdaspool/spool.conf"), format!("dir {}\n", path(dir).display())).unwrap();
        configure("one");
        fs::write(path("one/a b.txt"), "1\n2\n3\n").unwrap();
        fs::write(path("one/a c"), "").unwrap();
        fs::create_dir(path("one/folder")).unwrap();
        fs::write(path("two/new"), "1\n").unwrap();

        let text = format!("PCP_SYSCONF_DIR={0}\nPCP_VAR_DIR={0}\n", host.path().display());
        let builder = Engine::<Spool>::builder().config(Config::new(text.as_bytes(), []));
        let mut spool = Collector::new(Local::start(builder).unwrap());
        while !spool.agent().is_ready() {
            std::thread::yield_now();
        }
        let [files, lines, age] =
            ["spool.files", "spool.file.lines", "spool.file.age"].map(|m| spool.metric(m).unwrap());
        assert_eq!(spool.value(files).unwrap(), Atom::U64(2));
        let mut values: Vec<_> = spool.values(lines).unwrap().iter().map(|(_, value)| value.to_string()).collect();
        values.sort();
        assert_eq!(values, ["0", "3"]);
        assert!(spool.values(age).unwrap().iter().all(|(_, age)| matches!(age, Atom::Double(age) if age < 60.0)));
        configure("two");
        while !spool.value(files).is_ok_and(|count| count == Atom::U64(1)) {
            std::thread::yield_now();
        }
        assert_eq!(spool.values(lines).unwrap().get(Inst::new(2)), Some(Atom::U64(1)));
    }

    #[test]
    fn a_mistake_in_the_configuration_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut conf = ConfigFile::new(dir.path().join("spool.conf"));
        fs::write(conf.path(), "dir  /tmp \n").unwrap();
        assert_eq!(directory(&mut conf), Some("/tmp".into()));
        fs::write(conf.path(), "directory /tmp/elsewhere\n").unwrap();
        assert_eq!(directory(&mut conf), None);
    }
}
