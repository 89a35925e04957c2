//! Installs the agent in a folder into the PCP of this host, and removes it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::unistd::geteuid;
use pcp_view::Failure;
use pmapi::{Config, escape};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::agent;
use crate::cli::{Install, Remove, Transport};
use crate::deb::{self, Contents};
use crate::package::Package;

/// Builds the agent, makes it write its directory, and runs the script Install there.
pub(crate) fn install(install: &Install) -> Result<ExitCode, Failure> {
    if !install.deb {
        needs_pcp()?;
    }
    let package = Package::find(&install.build.selection)?;
    let binary = package.build(&install.build, "release")?;
    // Not in /tmp, because Install starts the agent, and /tmp may be mounted without permission to execute.
    let scratch = tempfile::Builder::new().prefix("pmda.").tempdir_in(&package.target)?;
    let dir = scratch.path().join("agent");
    let mut args = Vec::new();
    if let Some(name) = &install.name {
        args.extend(["--name".into(), OsString::from(name)]);
    }
    let mut words = install.transport.options();
    if let Some(domain) = install.domain {
        // A package has the domain as the agent's own. Otherwise it is a choice for this host, which Install keeps.
        let options = if install.deb { &mut args } else { &mut words };
        options.extend(["--domain".into(), OsString::from(domain.to_string())]);
    }
    if install.replace {
        words.push("-r".into());
    }
    if install.deb {
        let contents = Contents {
            about: &package.about,
            binary: &binary,
            written_with: &args,
            install: &words,
            args: &install.args,
        };
        let file = deb::write(&contents, scratch.path(), &package.target.join("debian"))?;
        escape::print(format_args!("{}\n", file.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let kept = if install.clears || !install.args.is_empty() {
        Vec::new()
    } else {
        let name = install.name.as_deref().unwrap_or_else(|| package.agent());
        kept(&Config::load().pmdas_dir().join(name))
    };
    write(&binary, &args, install, &kept, &dir)?;
    if install.clears || !install.args.is_empty() {
        words.push("--".into());
        words.extend(install.args.iter().cloned());
    }
    as_root(&dir.join("Install"), &words)
}

/// Makes the agent write its directory. Its names may depend on its options, here those of the last installation if there
/// are no others, on its domain, and on the installed configuration and numbers. The script Install decides about the
/// options.
fn write(binary: &Path, args: &[OsString], install: &Install, kept: &[OsString], dir: &Path) -> Result<(), Failure> {
    let domain: Vec<_> =
        install.domain.iter().flat_map(|n| ["--domain".into(), OsString::from(n.to_string())]).collect();
    let written = |more: &[&[OsString]]| {
        let mut command = Command::new(binary);
        command.args(args).args(more.iter().copied().flatten());
        agent::written(command, dir)
    };
    written(&[&install.args])
        .or_else(|first| written(&[&domain, &install.args]).map_err(|_| first))
        .or_else(|first| if kept.is_empty() { Err(first) } else { written(&[kept, &domain]).map_err(|_| first) })
        .map_err(agent::Refused::explained)
}

/// Returns the agent's options of the last installation, which Install keeps in a file of the agent's directory, with the domain
/// that the agent has there.
fn kept(dir: &Path) -> Vec<OsString> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let arguments = read("arguments.conf");
    let lines = arguments.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
    let header = read("domain.h");
    let domain = header.split_whitespace().nth(2).filter(|_| !words.is_empty());
    domain.into_iter().flat_map(|domain| ["--domain", domain]).chain(words).map(OsString::from).collect()
}

/// Runs the script Remove of the installed agent.
pub(crate) fn remove(remove: &Remove) -> Result<ExitCode, Failure> {
    needs_pcp()?;
    let name = match &remove.name {
        Some(name) => name.clone(),
        None => Package::find(&remove.selection)?.agent().to_owned(),
    };
    let is_name = pmns::is_name(&name) && !name.contains('.');
    let pmdas = Config::load().pmdas_dir();
    // An Install or Remove that was interrupted may have left the directory under another name.
    let names = [name.clone(), format!("{name}.kept"), format!(".{name}.old"), format!(".{name}.new")];
    let dir = names.iter().map(|name| pmdas.join(name)).find(|dir| is_name && dir.join(".before").is_dir());
    let dir = dir.ok_or_else(|| format!("no agent {name} of this framework is installed"))?;
    as_root(&dir.join("Remove"), &[])
}

impl Transport {
    /// Returns the options of the script Install.
    fn options(&self) -> Vec<OsString> {
        match self {
            Transport { dso: true, .. } => vec!["-D".into()],
            Transport { inet: Some(port), .. } => vec!["-i".into(), port.into()],
            Transport { ipv6: Some(port), .. } => vec!["-6".into(), port.into()],
            Transport { unix: Some(path), .. } => vec!["-u".into(), path.into()],
            Transport { pipe: true, .. } => vec!["-p".into()],
            _ => vec!["-k".into()],
        }
    }
}

/// Checks that this host has PCP.
fn needs_pcp() -> Result<(), Failure> {
    let top = std::env::var_os("PCP_DIR").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let file = top.join("etc/pcp.env");
    if file.exists() { Ok(()) } else { Err(format!("PCP is not installed (there is no {})", file.display()).into()) }
}

/// Runs a script as root, by sudo if this process is not root.
fn as_root(script: &Path, words: &[OsString]) -> Result<ExitCode, Failure> {
    let mut command = if geteuid().is_root() { Command::new("sh") } else { Command::new("sudo") };
    if !geteuid().is_root() {
        escape::eprint("Only root can change the PCP of this host: running sudo\n");
        command.args(["--", "sh"]);
    }
    // The terminal sends signals to the script, too, which says what it leaves. This process waits for it.
    let received = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, received.clone())?;
    }
    let status = command.arg(script).args(words).status();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = status.map_err(|e| format!("{program}: {e}; run this command as root"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_last_installation_have_its_domain() {
        let dir = tempfile::tempdir().unwrap();
        assert!(kept(dir.path()).is_empty());
        fs::write(dir.path().join("domain.h"), "#define REPLAY 406\n").unwrap();
        fs::write(dir.path().join("arguments.conf"), "# Arguments\n\n").unwrap();
        assert!(kept(dir.path()).is_empty());
        fs::write(dir.path().join("arguments.conf"), "# Arguments\n-a /srv/x\n  --speed 2\n").unwrap();
        assert_eq!(kept(dir.path()), ["--domain", "406", "-a", "/srv/x", "--speed", "2"]);
    }
}
