//! pmcd's configuration (pmcd(1)): the only reader and writer of `pmcd.conf` for Install and Remove.

use std::io;
use std::path::Path;

use pcp_base::file;

use crate::transport::{Address, inet_port};

/// How pmcd talks to an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Pipe,
    /// pmcd loads the agent.
    Dso,
    Socket(Address),
}

impl Transport {
    /// Describes the connection in a message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Transport::Pipe => "over a pipe".to_owned(),
            Transport::Dso => "as a shared object".to_owned(),
            Transport::Socket(address) => format!("over the {address}"),
        }
    }
}

/// The line of an agent in `pmcd.conf`: name, domain, and how pmcd reaches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AgentLine {
    pub(crate) text: String,
    words: Vec<String>,
}

impl AgentLine {
    /// Parses a line. Returns `None` for a comment, an empty line and a word alone.
    pub(crate) fn parse(text: &str) -> Option<AgentLine> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        (words.len() > 1 && !words[0].starts_with('#')).then(|| AgentLine { text: text.to_owned(), words })
    }

    pub(crate) fn name(&self) -> &str {
        &self.words[0]
    }

    pub(crate) fn domain(&self) -> Option<u16> {
        self.words[1].parse().ok()
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    pub(crate) fn is_dso(&self) -> bool {
        self.words.get(2).is_some_and(|word| word == "dso")
    }

    /// Returns how pmcd talks to the agent; `None` if the line is not one that Install writes.
    ///
    /// Install writes the number of a service's port: PCP's pmcd connects to the name's port with its bytes exchanged.
    pub(crate) fn transport(&self) -> Option<Transport> {
        let word = |n: usize| self.words.get(n).map(String::as_str);
        let port = || inet_port(word(4)?).ok();
        Some(match (word(2)?, word(3)) {
            ("pipe", _) => Transport::Pipe,
            ("dso", _) => Transport::Dso,
            ("socket", Some("inet")) => Transport::Socket(Address::Inet(port()?)),
            ("socket", Some("ipv6")) => Transport::Socket(Address::Ipv6(port()?)),
            ("socket", Some("unix")) => Transport::Socket(Address::Unix(word(4)?.into())),
            _ => return None,
        })
    }

    /// Returns the words of the command after the agent's program.
    pub(crate) fn arguments(&self, program: &str) -> &[String] {
        let is_program = |word: &String| word.rsplit_once('/').is_some_and(|(_, file)| file == program);
        let at = self.words.iter().skip(3).position(is_program);
        at.map_or(&[], |at| self.words.get(at + 4..).unwrap_or_default())
    }
}

/// The text of `pmcd.conf`. Lines that do not change stay byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct PmcdConf {
    lines: Vec<Vec<u8>>,
    /// Index of the first line of the section `[access]`, or the number of lines.
    access: usize,
}

impl PmcdConf {
    pub(crate) fn read(path: &Path) -> io::Result<PmcdConf> {
        Ok(Self::parse(&file::read(path, file::TEXT_LIMIT)?))
    }

    pub(crate) fn parse(text: &[u8]) -> PmcdConf {
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        let is_access = |line: &Vec<u8>| line.trim_ascii_start().starts_with(b"[");
        let access = lines.iter().position(is_access).unwrap_or(lines.len());
        PmcdConf { lines, access }
    }

    /// Returns the agents with the numbers of their lines, from 0.
    fn numbered(&self) -> impl Iterator<Item = (usize, AgentLine)> {
        let agents = self.lines[..self.access].iter().enumerate();
        agents.filter_map(|(n, line)| Some((n, AgentLine::parse(&String::from_utf8_lossy(line))?)))
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = AgentLine> {
        self.numbered().map(|(_, agent)| agent)
    }

    /// Returns the first agent with a name.
    pub(crate) fn agent(&self, name: &str) -> Option<AgentLine> {
        self.agents().find(|agent| agent.name() == name)
    }

    /// Returns whether the file has these lines, all of them.
    pub(crate) fn has_all(&self, lines: &[String]) -> bool {
        lines.iter().all(|wanted| self.lines.iter().any(|line| line == wanted.as_bytes()))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = self.lines.join(&b'\n');
        if !text.is_empty() {
            text.push(b'\n');
        }
        text
    }

    /// Returns the configuration with `line` for the agent. It replaces the agents with this name or domain, at the place
    /// of the first of them, or else follows the last agent.
    pub(crate) fn with_agent(&self, name: &str, domain: Option<u16>, line: &str) -> PmcdConf {
        let is_it = |agent: &AgentLine| agent.name() == name || domain.is_some() && agent.domain() == domain;
        let after = self.numbered().last().map_or(0, |(n, _)| n + 1);
        self.replaced(is_it, &[line.to_owned()], Some(after))
    }

    /// Returns the configuration without the agent, and in its place the lines of other agents.
    pub(crate) fn without_agent(&self, name: &str, others: &[String]) -> PmcdConf {
        self.replaced(|agent| agent.name() == name, others, None)
    }

    /// Returns the configuration with `new` in place of one line.
    pub(crate) fn with_line(&self, old: &str, new: &str) -> PmcdConf {
        self.replaced(|agent| agent.text == old, &[new.to_owned()], None)
    }

    /// Puts lines into the place of the first matching agent, and removes the other matching ones. If there is none, the
    /// lines go to index `or_at`.
    fn replaced(&self, is_it: impl Fn(&AgentLine) -> bool, new: &[String], or_at: Option<usize>) -> PmcdConf {
        let gone: Vec<usize> = self.numbered().filter(|(_, agent)| is_it(agent)).map(|(n, _)| n).collect();
        let at = gone.first().copied().or(or_at);
        let mut lines = Vec::with_capacity(self.lines.len() + new.len());
        for n in 0..=self.lines.len() {
            if Some(n) == at {
                lines.extend(new.iter().map(|line| line.clone().into_bytes()));
            }
            lines.extend(self.lines.get(n).filter(|_| !gone.contains(&n)).cloned());
        }
        let removed = gone.iter().filter(|n| **n < self.access).count();
        let added = if at.is_some() { new.len() } else { 0 };
        PmcdConf { access: self.access + added - removed, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# pmcd 2 is no agent\npmcd\t2\tdso\tpmcd_init\tpmda_pmcd.so\n\n\
                        linux\t60\tpipe binary /p/pmdalinux -l\nsimple 253 socket unix /run/s /p/simple/pmdasimple -d 253 -D x\n\
                        \n[access]\nsimple 253 is no agent here\n";

    fn text(conf: &PmcdConf) -> String {
        String::from_utf8(conf.to_bytes()).unwrap()
    }

    #[test]
    fn agents_stand_before_the_section_access() {
        let conf = PmcdConf::parse(TEXT.as_bytes());
        let names: Vec<_> = conf.agents().map(|agent| (agent.name().to_owned(), agent.domain())).collect();
        let expected = [("pmcd", 2), ("linux", 60), ("simple", 253)].map(|(name, n)| (name.to_owned(), Some(n)));
        assert_eq!(names, expected);
        assert_eq!(text(&conf), TEXT);
    }

    #[test]
    fn a_line_says_how_pmcd_talks_to_the_agent() {
        let conf = PmcdConf::parse(TEXT.as_bytes());
        let simple = conf.agent("simple").unwrap();
        assert_eq!(simple.transport(), Some(Transport::Socket(Address::Unix("/run/s".into()))));
        assert_eq!(simple.arguments("pmdasimple"), ["-d", "253", "-D", "x"]);
        assert!(simple.arguments("pmdaother").is_empty());
        assert_eq!(conf.agent("linux").unwrap().transport(), Some(Transport::Pipe));
        assert!(conf.agent("pmcd").unwrap().is_dso());
        assert_eq!(AgentLine::parse("a 1 socket inet").unwrap().transport(), None);
        assert_eq!(AgentLine::parse("a 1 shell").unwrap().transport(), None);
    }

    #[test]
    fn an_agent_takes_the_place_of_those_with_its_name_or_domain() {
        let conf = PmcdConf::parse(TEXT.as_bytes());
        let new = conf.with_agent("linux", Some(253), "linux 253 new");
        let rest = "\n[access]\nsimple 253 is no agent here\n";
        let head = "# pmcd 2 is no agent\npmcd\t2\tdso\tpmcd_init\tpmda_pmcd.so\n\n";
        assert_eq!(text(&new), format!("{head}linux 253 new\n{rest}"));
        let both = ["linux\t60\tx".to_owned(), "simple\t253\ty".to_owned()];
        let old = new.without_agent("linux", &both);
        assert_eq!(text(&old), format!("{head}linux\t60\tx\nsimple\t253\ty\n{rest}"));
        assert!(old.has_all(&both) && !new.has_all(&both));
        assert_eq!(old.agents().count(), 3);
        assert_eq!(text(&old.without_agent("simple", &[])), format!("{head}linux\t60\tx\n{rest}"));
    }

    #[test]
    fn a_new_agent_follows_the_last_one() {
        let conf = PmcdConf::parse(TEXT.as_bytes());
        let new = text(&conf.with_agent("own", Some(7), "own 7 pipe binary /x"));
        assert!(new.contains("-D x\nown 7 pipe binary /x\n\n[access]\n"), "{new}");
        for (before, after) in [("", "own 7 y\n"), ("[access]\n", "own 7 y\n[access]\n"), ("# x", "own 7 y\n# x\n")] {
            assert_eq!(text(&PmcdConf::parse(before.as_bytes()).with_agent("own", Some(7), "own 7 y")), after);
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let conf = PmcdConf::parse(b"# \xff\xfe\nx 1 dso a b\n\xff 2 y");
        let new = conf.with_agent("x", Some(1), "x 1 new");
        assert_eq!(new.to_bytes(), b"# \xff\xfe\nx 1 new\n\xff 2 y\n");
        assert_eq!(conf.without_agent("x", &[]).to_bytes(), b"# \xff\xfe\n\xff 2 y\n");
    }

    #[test]
    fn one_line_is_replaced() {
        let conf = PmcdConf::parse(b"x 1 dso a b\ny 2 dso a b\n");
        assert_eq!(conf.with_line("y 2 dso a b", "y 2 pipe binary z").to_bytes(), b"x 1 dso a b\ny 2 pipe binary z\n");
        assert_eq!(conf.with_line("none 3", "z").to_bytes(), conf.to_bytes());
    }
}
