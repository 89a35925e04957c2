//! Command `help`.

use crate::console::{Console, out};
use crate::token::Word;

/// Shows the help for a command, or the usage of all commands.
pub(crate) fn show(topic: Option<Word>, console: &Console) {
    let Some(topic) = topic else {
        let usage: String = COMMANDS.iter().map(|(_, usage, _)| *usage).collect();
        return out!(console, "help [ command ]\n\n{usage}\n");
    };
    for (_, usage, text) in COMMANDS.iter().filter(|(word, ..)| *word == topic) {
        out!(console, "\n{usage}\n{text}\n");
    }
}

/// Shows the forms of a command.
pub(crate) fn usage(command: Word, console: &Console) {
    for (_, usage, _) in COMMANDS.iter().filter(|(word, ..)| *word == command) {
        out!(console, "{usage}");
    }
}

/// Returns whether a keyword is a command other than `help`.
pub(crate) fn is_command(word: Word) -> bool {
    COMMANDS.iter().any(|(command, ..)| *command == word)
}

/// Commands with their forms and descriptions.
const COMMANDS: [(Word, &str, &str); 23] = [
    (
        Word::Attr,
        "attr name [value]\nattr attr# [value]\n",
        "Sends the agent an attribute of the client, as pmcd does: the user name, the user number, the\n\
         container and so on. A value with blanks needs quotes.\n",
    ),
    (
        Word::Children,
        "children metric-name\n",
        "Requests the names one level below a dynamic name. Shows for each whether it is a metric (leaf)\n\
         or has names below it (non-leaf).\n",
    ),
    (Word::Close, "close\n", "Closes the connection to the agent. Then another agent can be opened.\n"),
    (
        Word::Debug,
        "debug all | none\ndebug [-]flag [ [-]flag ... ] (- prefix to clear)\n",
        "Sets or clears debug options, which write traces to standard error. The flags are those of\n\
         pmdbg(1), or numbers for the older ones; \"status\" shows which are set. \"pdu\" shows the PDUs\n\
         sent and received.\n",
    ),
    (
        Word::Desc,
        "desc metric\n",
        "Requests the type, instance domain, semantics and units of a metric. The metric is given by its\n\
         name or its PMID: N, N.N or N.N.N.\n",
    ),
    (
        Word::Fetch,
        "fetch metric [ metric ... ]\n",
        "Requests the values of metrics. Sends the profile first if it has changed. Metrics are given by\n\
         their names or their PMIDs: N, N.N or N.N.N.\n",
    ),
    (
        Word::GetDesc,
        "getdesc on | off\n",
        "Makes fetch request descriptors first, so that values appear in the types of their metrics.\n\
         Otherwise they appear in each format that fits their size.\n",
    ),
    (
        Word::GetIname,
        "getiname on | off\n",
        "Makes fetch request the names of instances, which otherwise appear as ???. Fetch then requests\n\
         descriptors too.\n",
    ),
    (
        Word::Instance,
        "instance indom# [ number | name | \"name\" ]\n",
        "Requests the instances of a domain with their names, the name of one instance, or the instance\n\
         with a name.\n",
    ),
    (
        Word::Label,
        "label context\nlabel domain\nlabel indom indom#\nlabel cluster cluster#\nlabel item metric\n\
         label instances indom#\n",
        "Requests labels: of the context, the domain, an instance domain, a cluster or a metric, or of\n\
         the instances of a domain that the profile includes.\n",
    ),
    (Word::Name, "name pmid#\n", "Requests the dynamic names of a metric, which is given as N.N.N.\n"),
    (
        Word::NameSpace,
        "namespace fname\n",
        "Loads a file in place of the current name space. If the file has errors, loads the first name\n\
         space of the session again.\n",
    ),
    (
        Word::Open,
        "open dso dsoname init_routine [ domain# ]\nopen pipe execname [ arg ... ]\n\
         open socket unix sockname\nopen socket inet port#|service\nopen socket ipv6 port#|service\n",
        "Opens an agent and closes the previous one. Starts a program and talks to its standard input\n\
         and output (pipe), connects to an agent on a Unix domain socket (unix) or on a port of this host\n\
         (inet, ipv6), or loads a shared object (dso). The arguments are those of a line in pmcd.conf.\n",
    ),
    (Word::PmId, "pmid metric-name\n", "Requests the PMID of a dynamic name.\n"),
    (
        Word::Profile,
        "profile indom# [ all | none ]\nprofile indom# [ add | delete ] number\n",
        "Selects instances of a domain for the next fetches: all, none, one more or one less.\n",
    ),
    (Word::Quit, "quit\n", "Closes the agent and exits.\n"),
    (
        Word::Status,
        "status\n",
        "Shows the name space, the agent, the settings of debug, timer, getdesc and getiname, and the\n\
         profile.\n",
    ),
    (
        Word::Store,
        "store metric \"value\"\n",
        "Stores a value, in quotes, for the instances of a metric that the profile includes. Requests the\n\
         descriptor for the type of the value, and the present values for the instances.\n",
    ),
    (
        Word::Text,
        "text metric\ntext indom indom#\n",
        "Requests the help texts of a metric or an instance domain. Shows the one-line text in brackets,\n\
         and the long text below it.\n",
    ),
    (Word::Timer, "timer on | off\n", "Shows the time until the answer to each request.\n"),
    (Word::Traverse, "traverse metric-name\n", "Requests the full names of all metrics below a dynamic name.\n"),
    (Word::Wait, "wait seconds\n", "Waits for a number of seconds.\n"),
    (Word::Watch, "watch logfilename\n", "Opens a window that shows the end of a log file as it grows.\n"),
];
