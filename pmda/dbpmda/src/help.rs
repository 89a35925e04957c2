//! `help`.

use crate::command::{Form, Topic};
use crate::console::{Console, out};

/// Shows help for a command, or the forms of all of them.
pub(crate) fn show(topic: Option<Topic>, form: Form, console: &Console) {
    match (topic, form) {
        (None, _) => {
            out!(console, "help [ command ]\n\n");
            for topic in Topic::ALL {
                show(Some(topic), Form::Usage, console);
            }
            out!(console, "\n");
        }
        (Some(topic), Form::Usage) => out!(console, "{}", topic.usage()),
        (Some(topic), Form::Full) => out!(console, "\n{}\n{}\n", topic.usage(), topic.text()),
    }
}

impl Topic {
    const ALL: [Topic; 23] = [
        Topic::Attr,
        Topic::Children,
        Topic::Close,
        Topic::Debug,
        Topic::Desc,
        Topic::Fetch,
        Topic::GetDesc,
        Topic::GetIname,
        Topic::Instance,
        Topic::Label,
        Topic::Name,
        Topic::NameSpace,
        Topic::Open,
        Topic::PmId,
        Topic::Profile,
        Topic::Quit,
        Topic::Status,
        Topic::Store,
        Topic::Text,
        Topic::Timer,
        Topic::Traverse,
        Topic::Wait,
        Topic::Watch,
    ];

    /// The forms of the command.
    fn usage(self) -> &'static str {
        match self {
            Topic::Attr => "attr name [value]\nattr attr# [value]\n",
            Topic::Children => "children metric-name\n",
            Topic::Close => "close\n",
            Topic::Debug => "debug all | none\ndebug [-]flag [ [-]flag ... ] (- prefix to clear)\n",
            Topic::Desc => "desc metric\n",
            Topic::Fetch => "fetch metric [ metric ... ]\n",
            Topic::GetDesc => "getdesc on | off\n",
            Topic::GetIname => "getiname on | off\n",
            Topic::Instance => "instance indom# [ number | name | \"name\" ]\n",
            Topic::Label => {
                "label context\nlabel domain\nlabel indom indom#\nlabel cluster cluster#\nlabel item metric\n\
                 label instances indom#\n"
            }
            Topic::Name => "name pmid#\n",
            Topic::NameSpace => "namespace fname\n",
            Topic::Open => {
                "open dso dsoname init_routine [ domain# ]\nopen pipe execname [ arg ... ]\n\
                 open socket unix sockname\nopen socket inet port#|service\nopen socket ipv6 port#|service\n"
            }
            Topic::PmId => "pmid metric-name\n",
            Topic::Profile => "profile indom# [ all | none ]\nprofile indom# [ add | delete ] number\n",
            Topic::Quit => "quit\n",
            Topic::Status => "status\n",
            Topic::Store => "store metric \"value\"\n",
            Topic::Text => "text metric\ntext indom indom#\n",
            Topic::Timer => "timer on | off\n",
            Topic::Traverse => "traverse metric-name\n",
            Topic::Wait => "wait seconds\n",
            Topic::Watch => "watch logfilename\n",
        }
    }

    /// What the command does.
    fn text(self) -> &'static str {
        match self {
            Topic::Attr => {
                "Tells the agent an attribute of the client, as pmcd does for a client that it knows: the\n\
                 user's name or number, the container and so on. What has blanks needs quotes.\n"
            }
            Topic::Children => {
                "Asks the agent for the names right below a name that it keeps itself, and which of them\n\
                 are metrics (leaf) or have names below them (non-leaf).\n"
            }
            Topic::Close => "Ends the connection to the agent. Another one may be opened then.\n",
            Topic::Debug => {
                "Chooses what is traced to standard error. The flags are those of pmdbg(1), or numbers for\n\
                 the older ones; \"status\" shows which are set. \"pdu\" shows what is sent and received.\n"
            }
            Topic::Desc => {
                "Asks the agent for the type, instance domain, semantics and units of a metric, which is\n\
                 given by its name or as N, N.N or N.N.N.\n"
            }
            Topic::Fetch => {
                "Asks the agent for the values of metrics, after the profile if that has changed. Metrics\n\
                 are given by their names or as N, N.N or N.N.N.\n"
            }
            Topic::GetDesc => {
                "Whether a fetch asks for the descriptors first, so that values show in their metrics'\n\
                 types. Otherwise they show in every way that their size allows.\n"
            }
            Topic::GetIname => {
                "Whether a fetch asks for the names of the instances that have values, in place of which\n\
                 ??? shows otherwise. This needs the descriptors, too.\n"
            }
            Topic::Instance => {
                "Asks the agent for the instances of a domain with their names, for the name of one of\n\
                 them, or for the instance of a name.\n"
            }
            Topic::Label => {
                "Asks the agent for its labels: of everything, of a domain, an instance domain, a cluster\n\
                 or a metric, or of each instance of a domain that the profile lets through.\n"
            }
            Topic::Name => "Asks the agent for the names of a metric, given as N.N.N, whose names it keeps itself.\n",
            Topic::NameSpace => {
                "Loads a file with a name space in place of the one that is loaded. If it has errors, the\n\
                 name space of the session's start is loaded again.\n"
            }
            Topic::Open => {
                "Opens an agent and closes the one that was open: starts a program and talks to its standard\n\
                 input and output (pipe), connects to an agent that listens on a socket of the file system\n\
                 (unix) or on a port of this host (inet, ipv6), or loads a shared object (dso). The words are\n\
                 those of a line in pmcd.conf.\n"
            }
            Topic::PmId => "Asks the agent for the metric of a name that it keeps itself.\n",
            Topic::Profile => {
                "Chooses the instances of a domain that the next fetches are to bring: all, none, one more\n\
                 or one less.\n"
            }
            Topic::Quit => "Closes the agent and leaves.\n",
            Topic::Status => {
                "Shows the name space, the agent, the settings of debug, timer, getdesc and getiname, and\n\
                 the profile.\n"
            }
            Topic::Store => {
                "Stores a value, in quotes, into the instances of a metric that the profile lets through. The\n\
                 agent is asked for the descriptor and the present values first, as the value's type and the\n\
                 instances come from there.\n"
            }
            Topic::Text => {
                "Asks the agent for the help texts of a metric or of an instance domain: the line shows\n\
                 in brackets, the long text below it.\n"
            }
            Topic::Timer => "Whether the time that the agent takes for an answer is shown.\n",
            Topic::Traverse => "Asks the agent for the full names of all metrics below a name that it keeps itself.\n",
            Topic::Wait => "Does nothing for a while.\n",
            Topic::Watch => "Opens a window that shows the end of a log file as it grows.\n",
        }
    }
}
