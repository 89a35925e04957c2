//! Commands of the language.

use pcp_collector::Address;
use pmapi::{InDom, PmId};

use crate::token::Word;

/// Complete command. Identifiers are as typed: `None` for `PM_ID_NULL` and `PM_INDOM_NULL`, possibly of another domain
/// than the agent's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Empty line, or a command that the parser has executed.
    Nothing,
    Help(Option<Word>, Form),
    OpenDso {
        path: Vec<u8>,
        init: String,
        domain: i32,
    },
    OpenPipe {
        program: Vec<u8>,
        arguments: Vec<Vec<u8>>,
    },
    /// Address, and its name in messages.
    OpenSocket(Address, Vec<u8>),
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

/// Amount of help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Forms of the command, also shown for a command without its arguments.
    Usage,
    /// Forms and description.
    Full,
}
