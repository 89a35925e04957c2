//! Writes the files that PCP needs beside an agent's binary, from the agent's declarations.

use std::io::{self, Write as _};
use std::path::Path;

use pcp_base::file::{self, Dir, NewFile};

use crate::error::BoxError;
use crate::install::{self, About, Question, Spelling, Task};
use crate::schema::Schema;

impl Schema {
    /// Writes the compiled help, `base.dir` and `base.pag`, as newhelp(1) does from [`Schema::help`].
    ///
    /// # Errors
    /// [`pcp_help::Error`] when the help cannot be compiled, or a file cannot be written.
    pub(crate) fn write_help(&self, base: &Path) -> Result<(), pcp_help::Error> {
        pcp_help::compile(&self.help_entries())?.write(base)
    }

    /// Returns the source text of the help, for newhelp(1).
    ///
    /// # Errors
    /// [`pcp_help::Error`] when a line of a text begins with `#` or `@`, which newhelp's format does not allow.
    pub(crate) fn help(&self) -> Result<String, pcp_help::Error> {
        let text = pcp_help::source::write(&self.help_entries())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the text of `domain.h`.
    pub(crate) fn domain_h(&self) -> String {
        format!("#define {} {}\n", self.symbol(), self.domain())
    }

    fn readme(&self) -> String {
        let mut text = format!("Agent {} of Performance Co-Pilot, domain {}.\n\n", self.name(), self.domain());
        text.push_str("./Install installs it into the PCP of this host, ./Remove removes it.\n\nMetrics:\n");
        for m in self.metrics() {
            text.push_str(&format!("  {:<30} {}\n", m.name(), m.oneline()));
        }
        for root in self.dynamic() {
            text.push_str(&format!("  {:<30} dynamic names: pminfo {root} lists them\n", format!("{root}.*")));
        }
        text
    }

    /// Returns what Install needs to know. `spelling` returns how an option of the framework is written.
    fn about(&self, spelling: impl Fn(&str) -> String) -> About {
        let running = self.running();
        let debug = spelling("debug");
        About {
            name: self.name().to_owned(),
            is_renamed: self.is_renamed(),
            domain: self.domain().get(),
            symbol: self.symbol(),
            entry: format!("{}_init", self.own_name()),
            user: running.user.clone(),
            restart: running.restart,
            not_ready: self.is_not_ready(),
            spelling: Spelling {
                debug: if debug.starts_with("--") { debug + "=" } else { debug },
                domain: spelling("domain"),
                inet: spelling("inet"),
                ipv6: spelling("ipv6"),
                unix: spelling("unix"),
            },
            questions: self.arguments().iter().map(Question::from).collect(),
        }
    }

    /// Returns the script `Install` or `Remove`, which runs the agent's program.
    fn script(&self, task: Task) -> String {
        let text = include_str!("install/script.in");
        let text = text.replace("@SCRIPT@", task.script()).replace("@OPTION@", task.option());
        text.replace("@NAME@", self.name())
    }

    /// Writes the agent's complete PCP directory: scripts, name space, help, and a copy of `binary` under the name of
    /// the agent. When Cargo has left the agent's shared object beside the binary, copies that, too. Each file has its
    /// old content or its new one at any time. `spelling` returns how an option of the framework is written.
    ///
    /// # Errors
    /// The errors of the name space and of [`Schema::help`]. When a file cannot be written, the text has its path.
    pub(crate) fn write_dir(
        &self,
        dir: &Path,
        binary: &Path,
        spelling: impl Fn(&str) -> String,
    ) -> Result<(), BoxError> {
        let pmns = self.name_space()?;
        let top = Dir::create(dir).map_err(at(dir))?;
        let write = |name: &Path, text: &str, mode: u32| {
            write(&top, name, mode, |new| new.write_all(text.as_bytes())).map_err(at(&dir.join(name)))
        };
        write("pmns".as_ref(), &pmns.pmns, 0o644)?;
        write("root".as_ref(), &pmns.root, 0o644)?;
        write("help".as_ref(), &self.help()?, 0o644)?;
        write("domain.h".as_ref(), &self.domain_h(), 0o644)?;
        write("README".as_ref(), &self.readme(), 0o644)?;
        for (name, text) in self.files() {
            write(name, text, 0o644)?;
        }
        if self.reserves_domain() {
            // A line for stdpmid.local. Not called stdpmid, which the name space includes.
            write("domain.stdpmid".as_ref(), &format!("{}\t{}\n", self.symbol(), self.domain()), 0o644)?;
        }
        let about = serde_json::to_string_pretty(&self.about(spelling))? + "\n";
        write(install::FILE.as_ref(), &about, 0o644)?;
        for task in [Task::Install, Task::Remove] {
            write(task.script().as_ref(), &self.script(task), 0o755)?;
        }
        let copy = |from: &Path, name: &str| {
            self::write(&top, name.as_ref(), 0o755, |new| io::copy(&mut file::open(from)?, &mut new.file()).map(drop))
                .map_err(at(&dir.join(name)))
        };
        let object = binary.with_file_name(format!("libpmda_{}.so", self.own_name()));
        if object.exists() {
            copy(&object, &format!("pmda_{}.so", self.name()))?;
        }
        copy(binary, &format!("pmda{}", self.name()))
    }
}

/// Writes a file at a path below `top`. Directories in the path are created, and must not be symbolic links.
fn write(top: &Dir, path: &Path, mode: u32, content: impl FnOnce(&mut NewFile) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut dir = top.clone();
    for component in path.parent().into_iter().flat_map(Path::components) {
        dir = dir.subdir(component.as_os_str(), 0o777)?;
    }
    let mut new = NewFile::create_in(&dir, name)?;
    content(&mut new)?;
    new.set_mode(mode);
    new.commit()
}

/// Adds the path to an error of a file.
fn at(path: &Path) -> impl Fn(io::Error) -> BoxError + '_ {
    move |e| format!("{}: {e}", path.display()).into()
}
