//! The package of an agent, and its build by cargo.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_view::BoxError;
use serde_json::Value;

use crate::cli::{Build, Selection};
use crate::manifest::Workspace;

/// The package of an agent of this framework.
#[derive(Debug)]
pub(crate) struct Package {
    name: String,
    manifest: PathBuf,
    /// Binary of the agent.
    bin: String,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    pub(crate) about: About,
}

/// Description of a package in its manifest.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) licence: String,
    /// The first author, or the variables `DEBFULLNAME` and `DEBEMAIL`.
    pub(crate) maintainer: Option<String>,
}

impl About {
    fn new(package: &Value) -> About {
        let line = |key: &str, default: &str| match text(package, key).lines().next() {
            Some(line) if !line.trim().is_empty() => line.trim().to_owned(),
            _ => default.to_owned(),
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.contains(char::is_control));
        let author = list(&package["authors"]).find_map(Value::as_str).map(str::to_owned);
        let maintainer = match (variable("DEBFULLNAME"), variable("DEBEMAIL")) {
            (Some(name), Some(address)) => Some(format!("{name} <{address}>")),
            _ => author.filter(|author| !author.contains(char::is_control)),
        };
        About {
            name: line("name", ""),
            version: line("version", "0"),
            description: line("description", "agent of Performance Co-Pilot"),
            licence: line("license", "not stated"),
            maintainer,
        }
    }
}

fn cargo() -> Command {
    // cargo sets the variable for its subcommands.
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Runs cargo and returns its output. An error of cargo becomes one line.
fn output(command: &mut Command) -> Result<Vec<u8>, BoxError> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cargo: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.collect::<Vec<_>>().join(" ");
    Err(said.strip_prefix("error: ").unwrap_or(&said).into())
}

/// Checks that the manifests which cargo is about to read are files of bounded size: cargo itself waits for a FIFO, and reads
/// a device without end.
fn check_manifests(selection: &Selection) -> Result<(), BoxError> {
    let here = std::env::current_dir()?;
    let named = selection.manifest_path.as_ref().map(|path| here.join(path));
    let folder = named.as_deref().and_then(Path::parent).unwrap_or(&here);
    let above = folder.ancestors().map(Path::to_owned);
    let members = Workspace::around(folder).map(|workspace| workspace.members()).unwrap_or_default();
    let manifests = above.chain(members).map(|folder| folder.join("Cargo.toml"));
    for manifest in manifests.filter(|manifest| manifest.exists()) {
        pcp_base::file::read_text(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    }
    Ok(())
}

impl Package {
    /// Finds the package of an agent: that of the folder, or the one that the options choose.
    ///
    /// # Errors
    /// There is no package, it is not an agent, or the choice is ambiguous.
    pub(crate) fn find(selection: &Selection) -> Result<Package, BoxError> {
        check_manifests(selection)?;
        let with = |command: &mut Command| -> Result<Vec<u8>, BoxError> {
            if let Some(path) = &selection.manifest_path {
                command.arg("--manifest-path").arg(path);
            }
            output(command)
        };
        let located =
            with(cargo().args(["locate-project", "--message-format", "plain"])).map_err(|e| match selection {
                Selection { manifest_path: None, .. } => format!(
                    "{e}; this command is for the folder of an agent: cargo pmda new creates one, cargo pmda --help \
                 lists the commands"
                ),
                _ => e.to_string(),
            })?;
        let located = String::from_utf8_lossy(&located).trim().to_owned();
        let metadata = with(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        Self::choose(selection, &serde_json::from_slice(&metadata)?, &located)
    }

    /// Finds the package in the metadata of a workspace. `located` is the Cargo.toml of the folder.
    fn choose(selection: &Selection, metadata: &Value, located: &str) -> Result<Package, BoxError> {
        let packages: Vec<&Value> = list(&metadata["packages"]).collect();
        let chosen = match &selection.package {
            Some(name) => packages.iter().find(|package| package["name"] == name.as_str()),
            None => packages.iter().find(|package| package["manifest_path"] == located),
        };
        let Some(package) = chosen else {
            let names: Vec<&str> = packages
                .iter()
                .filter(|one| is_agent(one) && binary(one, None).is_ok())
                .map(|one| text(one, "name"))
                .collect();
            let names = if names.is_empty() { "it has no agents".to_owned() } else { names.join(", ") };
            return Err(match &selection.package {
                Some(name) => format!("the workspace of {located} has no package {name}; its agents: {names}").into(),
                None => format!("{located} has no package of its own; choose one with -p: {names}").into(),
            });
        };
        let name = text(package, "name");
        if !is_agent(package) {
            return Err(
                format!("package {name} does not depend on pcp-pmda, so it is not an agent of this framework").into()
            );
        }
        let bin = binary(package, selection.bin.as_deref()).map_err(|e| format!("package {name} {e}"))?;
        Ok(Package {
            name: name.to_owned(),
            manifest: text(package, "manifest_path").into(),
            bin,
            target: text(metadata, "target_directory").into(),
            about: About::new(package),
        })
    }

    /// Returns the name of the agent, which is that of the binary without `pmda`.
    pub(crate) fn agent(&self) -> &str {
        self.bin.strip_prefix("pmda").unwrap_or(&self.bin)
    }

    /// Builds the package. Returns the path of the agent's binary.
    ///
    /// # Errors
    /// cargo cannot build it, and has printed why.
    pub(crate) fn build(&self, build: &Build, default_profile: &str) -> Result<PathBuf, BoxError> {
        let mut command = cargo();
        command.args(["build", "--message-format", "json-render-diagnostics", "--package", &self.name]);
        command.arg("--manifest-path").arg(&self.manifest);
        let profile = if build.release { "release" } else { build.profile.as_deref().unwrap_or(default_profile) };
        command.args(["--profile", profile]);
        build.features.iter().for_each(|features| _ = command.args(["--features", features]));
        for (given, option) in [(build.locked, "--locked"), (build.offline, "--offline")] {
            if given {
                command.arg(option);
            }
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| format!("cargo: {e}"))?;
        let mut binary = None;
        for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            // Build scripts and macros may print other lines.
            let message = serde_json::from_str(&line?).unwrap_or(Value::Null);
            binary = self.built(&message).or(binary);
        }
        if !child.wait()?.success() {
            return Err(format!("cargo could not build package {}", self.name).into());
        }
        binary.ok_or_else(|| format!("cargo built no binary {}", self.bin).into())
    }

    /// Returns the path of the agent's binary if cargo's message says that it has been built.
    fn built(&self, message: &Value) -> Option<PathBuf> {
        let target = &message["target"];
        let is_it =
            message["reason"] == "compiler-artifact" && target["name"] == self.bin.as_str() && is_binary(target);
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn is_agent(package: &Value) -> bool {
    list(&package["dependencies"]).any(|dependency| dependency["name"] == "pcp-pmda" && dependency["kind"].is_null())
}

fn is_binary(target: &Value) -> bool {
    list(&target["kind"]).any(|kind| kind == "bin")
}

/// Returns the binary of the agent: the requested one, the only one, or the only one whose name begins with `pmda`.
fn binary(package: &Value, wanted: Option<&str>) -> Result<String, String> {
    let all: Vec<&str> =
        list(&package["targets"]).filter(|target| is_binary(target)).map(|target| text(target, "name")).collect();
    let named: Vec<&str> = all.iter().copied().filter(|name| name.starts_with("pmda")).collect();
    match (wanted, &*all, &*named) {
        (Some(wanted), ..) if all.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), [], _) => Err(format!("has no binary {wanted}, and no other")),
        (Some(wanted), ..) => Err(format!("has no binary {wanted}, but {}", all.join(", "))),
        (None, [one], _) | (None, _, [one]) => Ok((*one).to_owned()),
        (None, [], _) => Err("has no binary; an agent's is src/main.rs with pmda::main!".to_owned()),
        (None, ..) => Err(format!("has several binaries; choose one with --bin: {}", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace() -> Value {
        let bin = |name: &str| json!({"name": name, "kind": ["bin"]});
        let lib = json!({"name": "pmda_x", "kind": ["rlib", "cdylib"]});
        let needs = |kind: Value| json!([{"name": "pcp-pmda", "kind": kind}]);
        let package = |name: &str, dependencies: Value, targets: Value| {
            let manifest = format!("/w/{name}/Cargo.toml");
            json!({"name": name, "manifest_path": manifest, "dependencies": dependencies, "targets": targets})
        };
        json!({"target_directory": "/w/target", "packages": [
            package("one", needs(Value::Null), json!([lib, bin("pmdaone")])),
            package("several", needs(Value::Null), json!([bin("tool"), bin("pmdaa"), bin("pmdab")])),
            package("beside", needs(Value::Null), json!([bin("tool"), bin("pmdac")])),
            package("none", needs(Value::Null), json!([lib])),
            package("other", needs(json!("dev")), json!([bin("pmdax")])),
        ]})
    }

    fn choose(package: Option<&str>, bin: Option<&str>, located: &str) -> Result<String, String> {
        let [package, bin] = [package, bin].map(|word| word.map(str::to_owned));
        let selection = Selection { manifest_path: None, package, bin };
        let located = format!("/w/{located}Cargo.toml");
        Package::choose(&selection, &workspace(), &located).map(|found| found.bin).map_err(|e| e.to_string())
    }

    #[test]
    fn cargo_reads_no_fifo_and_no_device() {
        let dir = tempfile::tempdir().unwrap();
        let member = dir.path().join("a");
        std::fs::create_dir(&member).unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "[workspace]\nmembers = [\"*\"]\n").unwrap();
        let selection = Selection { manifest_path: Some(dir.path().join("Cargo.toml")), ..Selection::default() };
        assert!(check_manifests(&selection).is_ok());
        nix::unistd::mkfifo(&member.join("Cargo.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reason = check_manifests(&selection).unwrap_err().to_string();
        assert!(reason.contains("a/Cargo.toml: not a regular file"), "{reason}");
        std::fs::remove_file(member.join("Cargo.toml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", member.join("Cargo.toml")).unwrap();
        assert!(check_manifests(&selection).is_err());
    }

    #[test]
    fn the_package_and_its_binary_are_chosen() {
        let ok = |name: &str| Ok(name.to_owned());
        assert_eq!(choose(None, None, "one/"), ok("pmdaone"));
        assert_eq!(choose(Some("one"), None, ""), ok("pmdaone"));
        assert_eq!(choose(None, None, "beside/"), ok("pmdac"));
        assert_eq!(choose(None, Some("tool"), "beside/"), ok("tool"));
        for (package, bin, located, expected) in [
            (None, None, "", "/w/Cargo.toml has no package of its own; choose one with -p: one, beside"),
            (Some("x"), None, "", "the workspace of /w/Cargo.toml has no package x; its agents: one, beside"),
            (None, None, "several/", "package several has several binaries; choose one with --bin: tool, pmdaa, pmdab"),
            (None, Some("x"), "several/", "package several has no binary x, but tool, pmdaa, pmdab"),
            (None, None, "none/", "package none has no binary; an agent's is src/main.rs with pmda::main!"),
            (
                None,
                None,
                "other/",
                "package other does not depend on pcp-pmda, so it is not an agent of this framework",
            ),
        ] {
            assert_eq!(choose(package, bin, located), Err(expected.to_owned()));
        }
    }
}
