//! The agent's line in the files from which PCP makes `stdpmid`, the list of domains.

use std::io;
use std::path::Path;

use pcp_base::file;

use super::site::{Site, put, remove};
use super::text::{said, tell};

/// Reserves the agent's domain. The file `stdpmid.local` itself may belong to a package.
pub(crate) fn reserve(site: &Site, domain: u16) -> io::Result<()> {
    let own = site.place.join("domain.stdpmid");
    let Ok(line) = file::read(&own, file::TEXT_LIMIT) else { return Ok(()) };
    if file::read(&site.domains, file::TEXT_LIMIT).is_ok_and(|known| known == line) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    let mut words = text.split_whitespace();
    let (name, number) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if let Some(owner) = owner(&list(site), name, number) {
        tell(format!(
            "Domain {domain} is that of agent {owner} in {}. The two agents cannot be installed at the same time.",
            list(site).display()
        ));
        return free(site);
    }
    put(&site.domains, &line)?;
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
fn owner(list: &Path, name: &str, number: &str) -> Option<String> {
    let text = file::read_text(list).unwrap_or_default();
    text.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_taken = words.len() > 2 && words[0] == "#define" && words[2] == number && words[1] != name;
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
    command.current_dir(program.parent().unwrap_or(Path::new("/"))).env("PCP_TMPFILE_DIR", site.aside("tmp"));
    let Ok(output) = command.output() else { return };
    for line in [output.stdout, output.stderr].concat().split(|byte| *byte == b'\n') {
        if String::from_utf8_lossy(line).contains("Error") {
            said(line);
        }
    }
}
