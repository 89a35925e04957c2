//! The agent's line in the files from which PCP makes `stdpmid`, the list of domains.

use std::io;
use std::path::Path;

use pcp_base::file;

use super::report::{said, tell};
use super::site::{Site, remove};

/// Reserves the agent's domain. The file `stdpmid.local` itself may belong to a package.
pub(crate) fn reserve(site: &Site, domain: u16) -> io::Result<()> {
    let Ok(text) = file::read_text(site.place.join("domain.stdpmid")) else { return Ok(()) };
    let symbol = text.split_whitespace().next().unwrap_or_default();
    let line = format!("{symbol}\t{domain}\n");
    if file::read_text(&site.domains).is_ok_and(|known| known == line) {
        return Ok(());
    }
    if let Some(owner) = owner(&list(site), symbol, domain) {
        tell(format!(
            "Domain {domain} is that of agent {owner} in {}. The two agents cannot be installed at the same time.",
            list(site).display()
        ));
        return free(site);
    }
    file::replace(&site.domains, line.as_bytes())?;
    make_list(site);
    Ok(())
}

/// Removes the agent's line.
pub(crate) fn free(site: &Site) -> io::Result<()> {
    if site.domains.is_file() {
        remove(&site.domains)?;
        make_list(site);
    }
    Ok(())
}

fn list(site: &Site) -> std::path::PathBuf {
    site.domains.with_file_name("stdpmid")
}

/// Returns the other agent which has a domain in the list.
fn owner(list: &Path, symbol: &str, domain: u16) -> Option<String> {
    let text = file::read_text(list).unwrap_or_default();
    text.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_taken = words.len() > 2 && words[0] == "#define" && words[2].parse() == Ok(domain) && words[1] != symbol;
        is_taken.then(|| words[1].to_owned())
    })
}

/// Makes PCP write the list. It is for people and cpp: without it the agent works all the same.
fn make_list(site: &Site) {
    let program = site.domains.with_file_name("Make.stdpmid");
    if !program.exists() {
        return;
    }
    let mut command = site.command(&program);
    command.current_dir(program.parent().unwrap_or(Path::new("/"))).env("PCP_TMPFILE_DIR", &site.tmp);
    let Ok(output) = command.output() else { return };
    for line in [output.stdout, output.stderr].concat().split(|byte| *byte == b'\n') {
        if String::from_utf8_lossy(line).contains("Error") {
            said(line);
        }
    }
}
