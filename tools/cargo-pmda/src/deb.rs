//! A Debian package with the agent in a folder.
//!
//! `dpkg-deb` writes the archive, and `dpkg-shlibdeps` finds the packages of libraries. Crate `cargo-deb` would replace these two calls,
//! but not the scripts, the documents and the trial run of the agent, which are the rest of this module.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_base::escape;
use pcp_view::BoxError;

use crate::agent;
use crate::package::About;

/// Maintainer of a package that names none.
const UNKNOWN: &str = "Unknown <unknown@example.org>";

/// Contents of the package.
pub(crate) struct Contents<'a> {
    pub(crate) about: &'a About,
    pub(crate) binary: &'a Path,
    /// Options with which the agent writes its directory.
    pub(crate) written_with: &'a [OsString],
    /// Options of the script Install.
    pub(crate) install: &'a [OsString],
    /// Options of the agent, for its first installation.
    pub(crate) args: &'a [OsString],
}

/// Writes the package into a directory. Returns its path.
///
/// The agent's directory is in `/usr/lib/PACKAGE`. The package's scripts run Install and Remove in this directory, so
/// that an upgrade keeps the agent's arguments and configuration.
pub(crate) fn write(contents: &Contents<'_>, scratch: &Path, output: &Path) -> Result<PathBuf, BoxError> {
    let about = contents.about;
    let package = package_name(&about.name)?;
    let version = format!("{}-1", about.version.replace('-', "~"));
    let top = scratch.join("deb");
    let place = format!("usr/lib/{package}");
    let dir = top.join(&place);
    fs::create_dir_all(dir.parent().unwrap_or(&dir))?;
    // Names may depend on the agent's options.
    let options = [contents.written_with, contents.args].concat();
    agent::tried(contents.binary, &options, &dir, &scratch.join("trial"))?;
    let name = installed_name(&dir)?;
    // Another version of the package may have another name.
    let words = Words { place: &place, name: &name, install: &shell(contents.install)?, args: &shell(contents.args)? };
    let debian = top.join("DEBIAN");
    fs::create_dir(&debian)?;
    for (script, text) in [("postinst", words.postinst()), ("prerm", words.prerm()), ("postrm", words.postrm())] {
        let file = debian.join(script);
        fs::write(&file, text)?;
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    }
    document(about, &package, &version, &top, scratch)?;
    strip(&dir, scratch);
    let architecture = said("dpkg", &["--print-architecture".into()], scratch)?;
    let libraries = libraries(contents.binary, scratch);
    let maintainer = about.maintainer.as_deref().unwrap_or(UNKNOWN);
    let control = format!(
        "Package: {package}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\nSection: utils\n\
         Priority: optional\nDepends: pcp (>= 6.0), {libraries}\nDescription: {}\n \
         Agent {name} of Performance Co-Pilot. The package installs it into the PCP of\n this host, and its removal \
         removes it from there.\n",
        maintainer, about.description
    );
    fs::write(debian.join("control"), control)?;
    directories_are_readable(&top)?;
    fs::create_dir_all(output).map_err(|e| format!("{}: {e}", output.display()))?;
    let file = output.join(format!("{package}_{version}_{architecture}.deb"));
    said("dpkg-deb", &["--root-owner-group".into(), "--build".into(), top.into(), file.clone().into()], scratch)?;
    if about.maintainer.is_none() {
        escape::eprint(format_args!(
            "The package names {UNKNOWN} as its maintainer: set DEBFULLNAME and DEBEMAIL, or authors in Cargo.toml\n"
        ));
    }
    Ok(file)
}

/// Writes the files that Debian's policy asks for: copyright and changelog.
fn document(about: &About, package: &str, version: &str, top: &Path, scratch: &Path) -> Result<(), BoxError> {
    let doc = top.join("usr/share/doc").join(package);
    fs::create_dir_all(&doc)?;
    let maintainer = about.maintainer.as_deref().unwrap_or(UNKNOWN);
    let mut date = vec![OsString::from("-Ru")];
    if let Some(epoch) = std::env::var("SOURCE_DATE_EPOCH").ok().filter(|epoch| epoch.parse::<u64>().is_ok()) {
        date.extend(["-d".into(), format!("@{epoch}").into()]);
    }
    let date = said("date", &date, scratch)?;
    // As in "Mon, 23 Nov 2026 13:31:54 +0000".
    let year = date.split(' ').nth(3).unwrap_or_default();
    let copyright = format!("Copyright {year} {maintainer}\nLicence: {}\n", about.licence);
    fs::write(doc.join("copyright"), copyright)?;
    let changes = format!(
        "{package} ({version}) unstable; urgency=medium\n\n  * Built by cargo pmda.\n\n -- {maintainer}  {date}\n"
    );
    let file = doc.join("changelog.Debian");
    fs::write(&file, changes)?;
    said("gzip", &["-9n".into(), file.into()], scratch).map(|_| ())
}

/// Removes the symbols of the programs in a directory. Without the command `strip` they are larger.
fn strip(dir: &Path, scratch: &Path) {
    for file in fs::read_dir(dir).into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().starts_with("pmda") {
            let options = ["--strip-unneeded", "--remove-section=.comment"].map(OsString::from);
            let _ = said("strip", &[&options[..], &[file.path().into()]].concat(), scratch);
        }
    }
}

/// Texts that differ between the scripts of packages.
struct Words<'a> {
    place: &'a str,
    name: &'a str,
    install: &'a str,
    args: &'a str,
}

impl Words<'_> {
    fn postinst(&self) -> String {
        let Words { place, name, install, args } = self;
        let mut run = format!("sh /{place}/Install -s -Q {install}");
        if !args.is_empty() {
            // dpkg's old version ($2) does not tell whether the agent is in PCP: prerm takes it out while dpkg keeps the
            // version, and an Install may have failed. A complete Install has written .before/line as its last file. It
            // is in .NAME.tmp/new if an upgrade was interrupted between two renames, which the next Install completes.
            run = format!(
                ". \"$PCP_DIR/etc/pcp.env\"\n            if [ -f \"$PCP_PMDAS_DIR/{name}/.before/line\" ] || \
                 [ -f \"$PCP_PMDAS_DIR/.{name}.tmp/new/.before/line\" ]\n            then\n                {run}\n            \
                 else\n                {run} -- {args}\n            fi"
            );
        }
        format!(
            "#!/bin/sh\nset -e\ncase $1 in\n    configure | abort-*)\n        # Install keeps the arguments of an agent that \
             is in PCP. The state of pmcd must not stop the installation of packages.\n        (\n            {run}\n        \
             ) </dev/null || echo \"the agent is not installed in PCP: run /{place}/Install\" >&2\n        ;;\nesac\n"
        )
    }

    fn prerm(&self) -> String {
        let name = self.name;
        format!(
            "#!/bin/sh\nset -e\ncase $1 in\n    remove | deconfigure)\n        . \"$PCP_DIR/etc/pcp.env\"\n        [ ! -d \
             \"$PCP_PMDAS_DIR/{name}/.before\" ] || sh \"$PCP_PMDAS_DIR/{name}/Remove\" -Q || echo \"{name} stays in PCP\" \
             >&2\n        ;;\nesac\n"
        )
    }

    fn postrm(&self) -> String {
        // The directory belongs to user pcp, who could replace it by a link: nothing is removed from anywhere else.
        let name = self.name;
        format!(
            "#!/bin/sh\nset -e\ncase $1 in\n    purge)\n        [ ! -f \"$PCP_DIR/etc/pcp.env\" ] || . \
             \"$PCP_DIR/etc/pcp.env\"\n        logs=${{PCP_LOG_DIR:-/var/log/pcp}}/pmcd\n        if cd -P \"$logs\" \
             2>/dev/null && [ \"$(pwd -P)\" = \"$logs\" ]\n        then\n            rm -f {name}.log \
             {name}.log.prev\n        fi\n        ;;\nesac\n"
        )
    }
}

/// Returns the name of the agent in PCP: that of the only program in its directory.
fn installed_name(dir: &Path) -> Result<String, BoxError> {
    let names = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names = names.filter_map(|name| Some(name.strip_prefix("pmda").filter(|n| pmns::is_name(n))?.to_owned()));
    names.next().ok_or_else(|| format!("{}: it has no program of an agent", dir.display()).into())
}

/// Returns the name of a package, in a form that Debian allows.
fn package_name(name: &str) -> Result<String, BoxError> {
    let package = name.to_lowercase().replace('_', "-");
    let is_valid = package.len() > 1
        && package.starts_with(|c: char| c.is_ascii_alphanumeric())
        && package.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
    if is_valid { Ok(package) } else { Err(format!("{name:?} cannot be the name of a Debian package").into()) }
}

/// Quotes words for a shell script.
fn shell(words: &[OsString]) -> Result<String, BoxError> {
    let quoted = words.iter().map(|word| {
        let word = word.to_str().filter(|word| !word.contains(char::is_control));
        Ok(format!("'{}'", word.ok_or("an option has control characters or is not UTF-8")?.replace('\'', r"'\''")))
    });
    Ok(quoted.collect::<Result<Vec<_>, &str>>()?.join(" "))
}

/// Returns the packages of the libraries that the program needs, as far as this host can tell.
fn libraries(binary: &Path, scratch: &Path) -> String {
    let empty = scratch.join("shlibs");
    let control = fs::create_dir_all(empty.join("debian"))
        .and_then(|()| fs::write(empty.join("debian/control"), "Source: x\n\nPackage: x\nArchitecture: any\n"));
    let listed =
        control.map_err(BoxError::from).and_then(|()| said("dpkg-shlibdeps", &["-O".into(), binary.into()], &empty));
    let listed = listed.unwrap_or_default();
    listed.strip_prefix("shlibs:Depends=").filter(|list| !list.is_empty()).unwrap_or("libc6").to_owned()
}

/// Lets everybody read the directories, whatever the umask.
fn directories_are_readable(dir: &Path) -> Result<(), BoxError> {
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories_are_readable(&entry.path())?;
        }
    }
    Ok(())
}

/// Runs a command of Debian. Returns the first line that it prints.
fn said(program: &str, arguments: &[OsString], dir: &Path) -> Result<String, BoxError> {
    let output = Command::new(program).args(arguments).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{program}: {e}; a Debian package is built on Debian, with dpkg"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed: {}", text.trim().lines().next().unwrap_or("it does not say why")).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages() {
        assert_eq!(package_name("pmda-my_Agent").unwrap(), "pmda-my-agent");
        for bad in ["", "x", "-x", "a b", "ä!", "a/b"] {
            assert!(package_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(shell(&["-N".into(), "it's $(x)".into()]).unwrap(), r"'-N' 'it'\''s $(x)'");
        assert!(shell(&["a\nb".into()]).is_err());
    }

    /// What dpkg says about versions does not matter, only what a complete Install has left.
    #[test]
    fn arguments_go_to_the_first_install() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join("etc")).unwrap();
        fs::write(top.join("etc/pcp.env"), "").unwrap();
        fs::write(top.join("Install"), "echo $* >${0%/*}/ran").unwrap();
        let place = top.to_str().unwrap().trim_start_matches('/');
        let script = Words { place, name: "hello", install: "-k", args: "'-n' '5'" }.postinst();
        let ran = |reason: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", &script, "postinst", reason, "0.1.0-1"]).env("PCP_DIR", &top).env("PCP_PMDAS_DIR", &top);
            assert!(sh.status().unwrap().success());
            fs::read_to_string(top.join("ran")).unwrap()
        };
        assert_eq!(ran("configure"), "-s -Q -k -- -n 5\n");
        fs::create_dir_all(top.join("hello/.before")).unwrap();
        assert_eq!(ran("abort-deconfigure"), "-s -Q -k -- -n 5\n");
        fs::write(top.join("hello/.before/line"), "").unwrap();
        assert_eq!(ran("configure"), "-s -Q -k\n");
        fs::create_dir(top.join(".hello.tmp")).unwrap();
        fs::rename(top.join("hello"), top.join(".hello.tmp/new")).unwrap();
        assert_eq!(ran("configure"), "-s -Q -k\n");
        fs::rename(top.join(".hello.tmp/new"), top.join("hello.kept")).unwrap();
        assert_eq!(ran("configure"), "-s -Q -k -- -n 5\n");
    }

    /// User pcp may replace the directory of logs by a link.
    #[test]
    fn the_purge_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (logs, elsewhere) = (top.join("log/pmcd"), top.join("elsewhere"));
        fs::create_dir_all(&logs).unwrap();
        let script = Words { place: "", name: "hello", install: "", args: "" }.postrm();
        let purge = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", &script, "postrm", "purge"])
                .env("PCP_DIR", "/nonexistent")
                .env("PCP_LOG_DIR", top.join("log"));
            assert!(sh.status().unwrap().success());
        };
        for name in ["hello.log", "hello.log.prev", "other.log"] {
            fs::write(logs.join(name), "").unwrap();
        }
        purge();
        assert_eq!(fs::read_dir(&logs).unwrap().count(), 1);
        fs::rename(&logs, &elsewhere).unwrap();
        fs::write(elsewhere.join("hello.log"), "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &logs).unwrap();
        purge();
        assert!(elsewhere.join("hello.log").exists());
    }
}
