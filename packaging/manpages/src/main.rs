//! Program `manpages`: writes the man pages and shell completions of all commands and agents, from the definitions of
//! their command lines, and the help of `pcp-rs-pmda`. `packaging/deb` and `packaging/rpm` run it.

mod admin;
mod commands;
#[path = "../../../tools/mmvdump/src/options.rs"]
mod mmvdump;
#[path = "../../../tools/pmda-host/src/options.rs"]
mod pmda_host;
#[path = "../../../tools/pmdumplog/src/usage.rs"]
mod pmdumplog;
#[path = "../../../tools/pmlogderive/src/options.rs"]
mod pmlogderive;
mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{Command, Parser};
use clap_complete::aot::{Shell, generate_to};
use clap_mangen::Man;

use commands::{Kind, Page};

/// Writes the man pages and shell completions of all commands and agents
#[derive(Parser)]
#[command(name = "manpages", version = pcp_base::build::version(env!("CARGO_PKG_VERSION")))]
struct Options {
    /// Directory for man1, man8, bash, zsh, fish and pcp-rs-pmda.help; it may exist
    dir: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match write(&options.dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("manpages: {}: {e}", options.dir.display());
            ExitCode::FAILURE
        }
    }
}

fn write(dir: &Path) -> io::Result<()> {
    for page in commands::all() {
        manual(dir, &page)?;
        if page.kind == Kind::Command {
            completions(dir, &page.command)?;
        }
    }
    fs::write(dir.join("pcp-rs-pmda.help"), admin::command().render_long_help().to_string())
}

fn manual(dir: &Path, page: &Page) -> io::Result<()> {
    let folder = dir.join(format!("man{}", page.section));
    fs::create_dir_all(&folder)?;
    let name = page.command.get_name().to_owned();
    let man = Man::new(page.command.clone())
        .section(page.section)
        .source(concat!("pcp-rs ", env!("CARGO_PKG_VERSION")))
        .manual("pcp-rs")
        .date("");
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    fs::write(folder.join(format!("{name}.{}", page.section)), text)
}

fn completions(dir: &Path, command: &Command) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let folder = dir.join(shell.to_string());
        fs::create_dir_all(&folder)?;
        let mut command = command.clone();
        let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
        let file = generate_to(shell, &mut command, &name, &folder)?;
        if shell == Shell::Bash {
            // bash-completion looks for a file with the name of the command.
            fs::rename(file, folder.join(name))?;
        }
    }
    Ok(())
}
