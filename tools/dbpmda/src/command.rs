//! Commands of the language.

use pmapi::{InDom, PmId};

/// Complete command. Identifiers are as typed: `None` for `PM_ID_NULL` and `PM_INDOM_NULL`, possibly of another domain
/// than the agent's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Empty line, or a command that the parser has executed.
    Nothing,
    Help(Option<Topic>, Form),
    OpenDso {
        path: Vec<u8>,
        init: String,
        domain: i32,
    },
    OpenPipe {
        program: Vec<u8>,
        arguments: Vec<Vec<u8>>,
    },
    OpenSocket(Address),
    Close,
    Desc(Option<PmId>),
    Fetch(Vec<Option<PmId>>),
    Store(Option<PmId>, Vec<u8>),
    Text(Subject),
    Instance(Option<InDom>, Which),
    Profile(Option<InDom>, Change),
    Watch(Vec<u8>),
    Names(Option<PmId>),
    PmId(String),
    Children(String),
    Traverse(String),
    NameSpace(Vec<u8>),
    Attribute(i32, Option<Vec<u8>>),
    Label(Labels),
    Status,
    Timer(bool),
    GetDesc(bool),
    GetIname(bool),
    Wait(u32),
    Quit,
}

/// Address of an agent that listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Unix(Vec<u8>),
    Inet(i32),
    Ipv6(i32),
}

/// Subject of a help text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Metric(Option<PmId>),
    InDom(Option<InDom>),
}

/// Selection of instances in a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    All,
    Number(i32),
    Name(Vec<u8>),
}

/// Change of the profile for an instance domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    All,
    None,
    Add(i32),
    Delete(i32),
}

/// Subject of a request for labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labels {
    Context,
    Domain,
    InDom(Option<InDom>),
    Cluster(Option<PmId>),
    Item(Option<PmId>),
    Instances(Option<InDom>),
}

/// Command as a topic of `help`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    Attr,
    Children,
    Close,
    Debug,
    Desc,
    Fetch,
    GetDesc,
    GetIname,
    Instance,
    Label,
    Name,
    NameSpace,
    Open,
    PmId,
    Profile,
    Quit,
    Status,
    Store,
    Text,
    Timer,
    Traverse,
    Wait,
    Watch,
}

/// Amount of help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Forms of the command, also shown for a command without its arguments.
    Usage,
    /// Forms and description.
    Full,
}
