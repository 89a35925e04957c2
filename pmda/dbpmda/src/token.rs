//! The words of the command language.

/// A token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Word(Word),
    /// A word that is no other token: names of metrics, instances, debug options, files.
    Name(String),
    /// A name after a minus sign, which belongs to it.
    MinusName(String),
    /// A name after a dollar sign. Nothing takes it.
    Macro,
    /// What is no name, in the place of a file's name.
    Path(Vec<u8>),
    /// What is between quotes.
    Quoted(Vec<u8>),
    Number(i32),
    /// A number after a minus sign.
    Negative(i32),
    Number2([i32; 2]),
    Number3([i32; 3]),
    Comma,
    /// `=` or `+`. Nothing takes them.
    Operator,
    /// The end of a line.
    Eol,
    /// The end of the input.
    End,
}

macro_rules! words {
    ($($word:ident = $($text:literal)|+,)*) => {
        /// A word of the language.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Word {
            $($word,)*
        }

        impl Word {
            pub(crate) fn parse(text: &str) -> Option<Word> {
                Some(match text {
                    $($($text)|+ => Word::$word,)*
                    _ => return None,
                })
            }

            /// The words, for tests.
            #[cfg(test)]
            pub(crate) const ALL: &[&str] = &[$($($text),+,)*];
        }
    };
}

words! {
    Add = "add",
    All = "all",
    Attr = "attr" | "attribute",
    Children = "children",
    Close = "close",
    Cluster = "cluster",
    Context = "context",
    Debug = "debug",
    Delete = "delete",
    Desc = "desc",
    Domain = "domain",
    Dso = "dso",
    Fetch = "fetch",
    GetDesc = "getdesc",
    GetIname = "getiname",
    Help = "help",
    InDom = "indom",
    Inet = "inet",
    Instance = "instance",
    Instances = "instances",
    Ipv6 = "ipv6",
    Item = "item",
    Label = "label",
    Name = "name",
    NameSpace = "namespace",
    None = "none",
    Off = "off",
    On = "on",
    Open = "open",
    Pipe = "pipe",
    PmId = "pmid",
    Profile = "profile",
    Quit = "exit" | "q" | "quit",
    Socket = "socket",
    Status = "status",
    Store = "store",
    Text = "text",
    Timer = "timer",
    Traverse = "traverse",
    Unix = "unix",
    Wait = "wait",
    Watch = "watch",
}

impl Word {
    /// Whether the name of a file may follow.
    pub(crate) fn opens_path(self) -> bool {
        matches!(self, Word::Dso | Word::NameSpace | Word::Pipe | Word::Socket | Word::Watch)
    }
}
