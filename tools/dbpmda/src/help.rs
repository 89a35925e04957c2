//! Command `help`.

use crate::command::{Form, Topic};
use crate::console::{Console, out};

/// Shows the help for a command, or the usage of all commands.
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

    /// Returns the forms of the command.
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

    /// Returns the description of the command.
    fn text(self) -> &'static str {
        match self {
            Topic::Attr => {
                "Sends the agent an attribute of the client, as pmcd does: the user name, the user number, the\n\
                 container and so on. A value with blanks needs quotes.\n"
            }
            Topic::Children => {
                "Requests the names one level below a dynamic name. Shows for each whether it is a metric (leaf)\n\
                 or has names below it (non-leaf).\n"
            }
            Topic::Close => "Closes the connection to the agent. Then another agent can be opened.\n",
            Topic::Debug => {
                "Sets or clears debug options, which write traces to standard error. The flags are those of\n\
                 pmdbg(1), or numbers for the older ones; \"status\" shows which are set. \"pdu\" shows the PDUs\n\
                 sent and received.\n"
            }
            Topic::Desc => {
                "Requests the type, instance domain, semantics and units of a metric. The metric is given by its\n\
                 name or its PMID: N, N.N or N.N.N.\n"
            }
            Topic::Fetch => {
                "Requests the values of metrics. Sends the profile first if it has changed. Metrics are given by\n\
                 their names or their PMIDs: N, N.N or N.N.N.\n"
            }
            Topic::GetDesc => {
                "Makes fetch request descriptors first, so that values appear in the types of their metrics.\n\
                 Otherwise they appear in each format that fits their size.\n"
            }
            Topic::GetIname => {
                "Makes fetch request the names of instances, which otherwise appear as ???. Fetch then requests\n\
                 descriptors too.\n"
            }
            Topic::Instance => {
                "Requests the instances of a domain with their names, the name of one instance, or the instance\n\
                 with a name.\n"
            }
            Topic::Label => {
                "Requests labels: of the context, the domain, an instance domain, a cluster or a metric, or of\n\
                 the instances of a domain that the profile includes.\n"
            }
            Topic::Name => "Requests the dynamic names of a metric, which is given as N.N.N.\n",
            Topic::NameSpace => {
                "Loads a file in place of the current name space. If the file has errors, loads the first name\n\
                 space of the session again.\n"
            }
            Topic::Open => {
                "Opens an agent and closes the previous one. Starts a program and talks to its standard input\n\
                 and output (pipe), connects to an agent on a Unix domain socket (unix) or on a port of this host\n\
                 (inet, ipv6), or loads a shared object (dso). The arguments are those of a line in pmcd.conf.\n"
            }
            Topic::PmId => "Requests the PMID of a dynamic name.\n",
            Topic::Profile => "Selects instances of a domain for the next fetches: all, none, one more or one less.\n",
            Topic::Quit => "Closes the agent and exits.\n",
            Topic::Status => {
                "Shows the name space, the agent, the settings of debug, timer, getdesc and getiname, and the\n\
                 profile.\n"
            }
            Topic::Store => {
                "Stores a value, in quotes, for the instances of a metric that the profile includes. Requests the\n\
                 descriptor for the type of the value, and the present values for the instances.\n"
            }
            Topic::Text => {
                "Requests the help texts of a metric or an instance domain. Shows the one-line text in brackets,\n\
                 and the long text below it.\n"
            }
            Topic::Timer => "Shows the time until the answer to each request.\n",
            Topic::Traverse => "Requests the full names of all metrics below a dynamic name.\n",
            Topic::Wait => "Waits for a number of seconds.\n",
            Topic::Watch => "Opens a window that shows the end of a log file as it grows.\n",
        }
    }
}
