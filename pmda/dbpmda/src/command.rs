//! What can be asked for.

use pmapi::{InDom, PmId};

/// A whole command. Identifiers are words that somebody typed: absent for `PM_ID_NULL` and
/// `PM_INDOM_NULL`, and not always of an agent's domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// An empty line, or what the parser has already done.
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

/// Where an agent listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Unix(Vec<u8>),
    Inet(i32),
    Ipv6(i32),
}

/// What a text describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Metric(Option<PmId>),
    InDom(Option<InDom>),
}

/// Which instances of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    All,
    Number(i32),
    Name(Vec<u8>),
}

/// A change of what the profile says of an instance domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    All,
    None,
    Add(i32),
    Delete(i32),
}

/// Whose labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labels {
    Context,
    Domain,
    InDom(Option<InDom>),
    Cluster(Option<PmId>),
    Item(Option<PmId>),
    Instances(Option<InDom>),
}

/// A command that help is wanted for.
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

/// How much help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The forms of the command: for a command without its arguments.
    Usage,
    /// What it does, too.
    Full,
}
