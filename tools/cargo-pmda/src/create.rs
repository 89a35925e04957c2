//! Creates a package with an agent.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_base::escape;
use pcp_base::file::check_place;
use pcp_view::BoxError;
use pmapi::Config;

use crate::cli::New;
use crate::manifest::{self, Workspace};
use crate::names::{self, Kind, Taken};
use crate::neighbours;
use crate::original::Original;
use crate::port;
use crate::template::{Crates, Identity, type_name};

/// Comment above a path in Cargo.toml.
const NOTE: &str =
    "# Of a clone of pcp-rs beside this package: if it is elsewhere, change this path and the one below.\n";

/// Profile of what `cargo pmda install` installs.
const PROFILE: &str = "
# A third smaller than by default; the build takes longer.
[profile.release]
lto = true
codegen-units = 1
strip = true
";

/// Creates the package of a new agent in a folder of the agent's name. After an error there is no such folder.
pub(crate) fn create(new: &New) -> Result<(), BoxError> {
    let name = new.name.as_str();
    let folder = std::env::current_dir()?;
    let mut taken = Taken::load(&Config::load());
    // Their names need no check: the folder of an agent has its name, and an existing folder is refused.
    let workspace = Workspace::around(&folder);
    for agent in neighbours::find(&folder, workspace.as_ref()) {
        taken.add_domain(agent.domain, agent.to_string());
    }
    let clone = new.path.as_ref().map_or_else(own_clone, |path| Ok(Some(path.clone())));
    let crates =
        clone.as_ref().map_err(|e| e.as_str().into()).and_then(|clone| crates(name.as_ref(), clone.as_deref()));
    let (domain, crates) = match (valid_name(new, &taken), domain(new, &taken), crates) {
        (Ok(()), Ok(domain), Ok(crates)) => (domain, crates),
        (name, domain, crates) => {
            let crates = crates.map_err(|e| e.to_string());
            let mistakes = [name.err(), domain.err(), crates.err()].into_iter().flatten();
            return Err(mistakes.collect::<Vec<_>>().join("; ").into());
        }
    };
    let mut files = new.template.files(&Identity { name, domain }, &crates);
    let mut has_help = true;
    if let Some(from) = &new.from {
        (files[4].1, has_help) = ported((from, &new.args), (name, domain), &taken)?;
    }
    match workspace {
        // Cargo ignores the profiles of a member.
        Some(workspace) if workspace.would_have(&folder.join(name)) => {}
        Some(_) => {
            files[0].1 += PROFILE;
            files[0].1 += "\n# A workspace of its own, apart from that of the folder above.\n[workspace]\n";
        }
        None => files[0].1 += PROFILE,
    }
    write(Path::new(name), &files)?;
    if new.from.is_some() {
        format(Path::new(name));
    }
    escape::print(format_args!(
        "Created the agent {name} with domain {domain} in the folder {name}. Next: cd {name} && cargo pmda run\n\
         To change the domain, change DOMAIN in {name}/src/lib.rs; cargo pmda install --domain N selects another one \
         on one host.\n"
    ));
    if !has_help {
        escape::print(format_args!(
            "The original has no help, from its program or in a file help. Write that of each metric, with .help(…).\n"
        ));
    }
    let owners = [taken.owner_of_name(name), taken.owner_of_domain(domain)];
    if let Some((_, owner)) = owners.into_iter().flatten().next() {
        escape::print(format_args!(
            "cargo pmda install --replace installs it in place of {owner}, and cargo pmda remove restores that.\n"
        ));
    }
    if let (None, Ok(Some(clone))) = (&new.path, &clone) {
        let clone = clone.display();
        escape::print(format_args!("Its crates are those of the clone {clone}; --path selects another one.\n"));
    }
    Ok(())
}

/// Returns the source file of an agent with this name and domain, which declares the metrics of an installed one, and
/// whether that one has help.
fn ported(
    (from, args): (&Path, &[OsString]),
    (name, domain): (&str, u16),
    taken: &Taken,
) -> Result<(String, bool), BoxError> {
    let is_name = from.components().count() == 1 && !from.is_dir();
    let dir = if is_name { Config::load().pmdas_dir().join(from) } else { from.to_owned() };
    let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
    let old = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let original = Original::ask((&dir, &old), args, taken.domain_of(&old))?;
    Ok((port::source((name, &type_name(name), domain), &original, &old), original.has_help()))
}

/// Returns the clone of the repository from which this command was built; `None` for a command from crates.io, where
/// the agent's crates are too.
fn own_clone() -> Result<Option<PathBuf>, String> {
    clone_of(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// Returns the clone with this folder of the package. Cargo will run code of the clone, so only the user and root may be
/// able to change it: a command from a package of the system was built on another host, where its path was trusted.
fn clone_of(package: &Path) -> Result<Option<PathBuf>, String> {
    // Where cargo keeps the sources of packages from a registry.
    if package.ancestors().any(|dir| dir.ends_with("registry/src")) {
        return Ok(None);
    }
    let clone = package.ancestors().nth(2).unwrap_or(package);
    match check_place(&clone.join("pmda/Cargo.toml")) {
        Ok(()) => Ok(Some(clone.to_owned())),
        Err(why) => Err(format!(
            "--path CLONE is needed, the folder of a clone of pcp-rs: its crates are not on crates.io, and the clone of \
             this command, {}, cannot be used: {why}",
            clone.display()
        )),
    }
}

/// Checks that the agent may have its name.
fn valid_name(new: &New, taken: &Taken) -> Result<(), String> {
    let name = &new.name;
    names::check(name).map_err(|e| format!("{name:?}: {e}"))?;
    may_have(taken.owner_of_name(name), new, &format!("the name {name}"))
}

/// Checks that the agent may have a name or a domain of this owner.
fn may_have(owner: Option<(Kind, &str)>, new: &New, what: &str) -> Result<(), String> {
    match owner {
        None => Ok(()),
        Some((Kind::Agent, _)) if new.replace => Ok(()),
        Some((Kind::Agent, owner)) => {
            Err(format!("{what} belongs to {owner}, which --replace lets the new agent replace"))
        }
        Some((_, owner)) => Err(format!("{what} belongs to {owner}")),
    }
}

/// Returns the domain of the agent: the requested domain, that of the agent that it replaces, or a free one.
fn domain(new: &New, taken: &Taken) -> Result<u16, String> {
    let replaced = || taken.domain_of(&new.name).filter(|_| new.replace);
    let Some(domain) = new.domain.or_else(replaced) else {
        let none = "no domain from 385 to 510 is free; --domain chooses another one";
        return taken.free_domain(&new.name).ok_or_else(|| none.to_owned());
    };
    may_have(taken.owner_of_domain(domain), new, &format!("domain {domain}")).map(|()| domain)
}

/// Returns the crates that the agent depends on: of a clone, or of crates.io.
fn crates(package: &Path, clone: Option<&Path>) -> Result<Crates, BoxError> {
    let Some(dir) = clone else {
        let version = format!("{:?}", env!("CARGO_PKG_VERSION"));
        return Ok(Crates { note: "", pmda: version.clone(), collector: version });
    };
    // As it will be: the folder is not there yet.
    let place = std::env::current_dir()?.canonicalize()?.join(package);
    let top = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
    let of = |folder: &str, package: &str| -> Result<String, BoxError> {
        let manifest = manifest::read(&top.join(folder).join("Cargo.toml")).unwrap_or_default();
        if manifest::package(&manifest) != Some(package) {
            return Err(format!("{}: not a clone of pcp-rs: it has no crate {package}", dir.display()).into());
        }
        let path = relative(&place, &top.join(folder)).into_os_string().into_string();
        let path = path.map_err(|_| format!("{}: a path in Cargo.toml must be UTF-8", dir.display()))?;
        Ok(format!("{{ path = {} }}", toml::Value::from(path)))
    };
    Ok(Crates { note: NOTE, pmda: of("pmda", "pcp-pmda")?, collector: of("pmapi/collector", "pcp-collector")? })
}

/// Formats the source file that was written for this agent alone, if rustfmt is installed. Any Rust is as good otherwise.
fn format(folder: &Path) {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024"]).arg(folder.join("src/lib.rs")).stdin(Stdio::null());
    drop(rustfmt.stdout(Stdio::null()).stderr(Stdio::null()).status());
}

/// Returns the path of a folder relative to another one, so that a package and its crates can be moved together.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// The new folder, which is removed again unless it becomes complete.
struct Folder {
    path: PathBuf,
    is_complete: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_complete {
            // The error because of which the folder is incomplete is reported.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes the files into a new folder, which must not exist.
fn write(path: &Path, files: &[(&str, String)]) -> Result<(), BoxError> {
    let at = |path: &Path, e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => format!("{} exists already, and nothing is overwritten", path.display()),
        _ => format!("{}: {e}", path.display()),
    };
    fs::create_dir(path).map_err(|e| at(path, e))?;
    let mut folder = Folder { path: path.to_owned(), is_complete: false };
    fs::create_dir(path.join("src")).map_err(|e| at(&path.join("src"), e))?;
    for (name, text) in files {
        let file = path.join(name);
        fs::write(&file, text).map_err(|e| at(&file, e))?;
    }
    folder.is_complete = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_crates_are_those_of_the_commands_own_clone() {
        let clone = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        assert_eq!(own_clone(), Ok(Some(clone.to_owned())));
        assert_eq!(clone_of("/home/x/.cargo/registry/src/index/cargo-pmda-0.1.0".as_ref()), Ok(None));
        assert!(clone_of("/home/x/registry/clone/tools/cargo-pmda".as_ref()).is_err());
        let e = clone_of("/nonexistent/tools/cargo-pmda".as_ref()).unwrap_err();
        assert!(e.starts_with("--path CLONE is needed, ") && e.contains("this command, /nonexistent, cannot"), "{e}");
        // A clone that another user could replace.
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pmda")).unwrap();
        fs::write(dir.path().join("pmda/Cargo.toml"), "").unwrap();
        assert!(clone_of(&dir.path().join("tools/cargo-pmda")).is_ok());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let e = clone_of(&dir.path().join("tools/cargo-pmda")).unwrap_err();
        assert!(e.contains("other users may write to it (mode 777)"), "{e}");
    }

    #[test]
    fn paths_are_relative_to_the_package() {
        for (from, to, path) in [
            ("/home/u/hello", "/home/u/pcp-rs/pmda", "../pcp-rs/pmda"),
            ("/home/u/work/hello", "/home/u/pcp-rs/pmda", "../../pcp-rs/pmda"),
            ("/home/u/pcp-rs/examples/hello", "/home/u/pcp-rs/pmda", "../../pmda"),
            ("/srv/hello", "/home/u/pcp-rs/pmda", "../../home/u/pcp-rs/pmda"),
        ] {
            assert_eq!(relative(from.as_ref(), to.as_ref()), Path::new(path), "{from} {to}");
        }
    }

    #[test]
    fn a_folder_is_complete_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hello");
        // The folder of the second file does not exist.
        let broken = [("src/lib.rs", "x".to_owned()), ("missing/file", "y".to_owned())];
        let e = write(&path, &broken).unwrap_err().to_string();
        assert!(e.contains("missing/file: No such file"), "{e}");
        assert!(!path.exists());
        write(&path, &broken[..1]).unwrap();
        assert_eq!(fs::read_to_string(path.join("src/lib.rs")).unwrap(), "x");
        let e = write(&path, &broken).unwrap_err().to_string();
        assert!(e.ends_with("hello exists already, and nothing is overwritten"), "{e}");
        assert!(path.join("src/lib.rs").exists());
    }
}
