//! Installs the agent in a folder into the PCP of this host, and removes it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::unistd::geteuid;
use pcp_base::escape;
use pcp_view::BoxError;
use pmapi::Config;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{Install, Remove, Transport};
use crate::deb::{self, Contents};
use crate::package::Package;

/// Builds the agent, and runs its program with --install; or writes a Debian package.
pub(crate) fn install(install: &Install) -> Result<ExitCode, BoxError> {
    if !install.deb {
        needs_pcp()?;
    }
    let package = Package::find(&install.build.selection)?;
    let binary = package.build(&install.build, "release")?;
    let mut name = Vec::new();
    if let Some(given) = &install.name {
        name.extend(["--name".into(), OsString::from(given)]);
    }
    let domain = install.domain.map(|domain| ["--domain".into(), OsString::from(domain.to_string())]);
    let mut words = install.transport.options();
    if install.replace {
        words.push("-r".into());
    }
    if install.deb {
        // A package has the domain as the agent's own. Otherwise it is a choice for this host, which Install keeps.
        name.extend(domain.into_iter().flatten());
        if !install.transport.is_chosen() {
            words.push("-k".into());
        }
        // Not in /tmp, which may be mounted without permission to execute.
        let scratch = tempfile::Builder::new().prefix("pmda.").tempdir_in(&package.target)?;
        let contents = Contents {
            about: &package.about,
            binary: &binary,
            written_with: &name,
            install: &words,
            args: &install.args,
        };
        let file = deb::write(&contents, scratch.path(), &package.target.join("debian"))?;
        escape::print(format_args!("{}\n", file.display()));
        return Ok(ExitCode::SUCCESS);
    }
    // The program asks for the name and the domain only without -k.
    let mut options = vec!["--install".into(), "-k".into()];
    options.extend([name, words].concat());
    options.extend(domain.into_iter().flatten());
    if install.clears || !install.args.is_empty() {
        options.push("--".into());
        options.extend(install.args.iter().cloned());
    }
    as_root(binary.as_os_str(), &options)
}

/// Runs the script Remove of the installed agent.
pub(crate) fn remove(remove: &Remove) -> Result<ExitCode, BoxError> {
    needs_pcp()?;
    let name = match &remove.name {
        Some(name) => name.clone(),
        None => Package::find(&remove.selection)?.agent().to_owned(),
    };
    let is_name = pmns::is_name(&name) && !name.contains('.');
    let pmdas = Config::load().pmdas_dir();
    // An Install or Remove that was interrupted may have left the directory under another name.
    let names = [name.clone(), format!("{name}.kept"), format!(".{name}.tmp/old"), format!(".{name}.tmp/new")];
    let dir = names.iter().map(|name| pmdas.join(name)).find(|dir| is_name && dir.join(".before").is_dir());
    let dir = dir.ok_or_else(|| format!("no agent {name} of this framework is installed"))?;
    as_root("sh".as_ref(), &[dir.join("Remove").into()])
}

impl Transport {
    fn is_chosen(&self) -> bool {
        !self.options().is_empty()
    }

    /// Returns the options of Install.
    fn options(&self) -> Vec<OsString> {
        match self {
            Transport { dso: true, .. } => vec!["-D".into()],
            Transport { inet: Some(port), .. } => vec!["-i".into(), port.into()],
            Transport { ipv6: Some(port), .. } => vec!["-6".into(), port.into()],
            Transport { unix: Some(path), .. } => vec!["-u".into(), path.into()],
            Transport { pipe: true, .. } => vec!["-p".into()],
            _ => Vec::new(),
        }
    }
}

/// Checks that this host has PCP.
fn needs_pcp() -> Result<(), BoxError> {
    let top = std::env::var_os("PCP_DIR").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let file = top.join("etc/pcp.env");
    if file.exists() { Ok(()) } else { Err(format!("PCP is not installed (there is no {})", file.display()).into()) }
}

/// Runs a program as root, by sudo if this process is not root.
fn as_root(program: &OsStr, words: &[OsString]) -> Result<ExitCode, BoxError> {
    let mut command = Command::new(program);
    if !geteuid().is_root() {
        escape::eprint("Only root can change the PCP of this host: running sudo\n");
        command = Command::new("sudo");
        command.arg("--").arg(program);
    }
    // The terminal sends signals to the program, too, which says what it leaves. This process waits for it.
    let received = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, received.clone())?;
    }
    let status = command.args(words).status();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = status.map_err(|e| format!("{program}: {e}; run this command as root"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
