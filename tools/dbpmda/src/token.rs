//! Tokens of the command language.

/// Token of the command language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Word(Word),
    /// Word that is not a keyword: the name of a metric, an instance, a debug option or a file.
    Name(String),
    /// Name after a minus sign, which is part of it.
    MinusName(String),
    /// Name after a dollar sign. No command accepts it.
    Macro,
    /// Path of a file that is not a name.
    Path(Vec<u8>),
    /// Text between quotes.
    Quoted(Vec<u8>),
    Number(i32),
    /// Number after a minus sign, which is part of it.
    Negative(i32),
    Number2([i32; 2]),
    Number3([i32; 3]),
    Comma,
    /// `=` or `+`. No command accepts them.
    Operator,
    /// End of a line.
    Eol,
    /// End of the input.
    End,
    /// White space, which the scanner skips.
    Blank,
    /// Text that is not a token, with the message of the error.
    Invalid(String),
}

macro_rules! words {
    ($($word:ident = $($text:literal)|+,)*) => {
        /// Keyword of the language.
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

            /// Returns the keyword in its first spelling.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Word::$word => [$($text),+][0],)*
                }
            }

            /// All keywords, for tests.
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
    /// Returns whether the path of a file may follow.
    pub(crate) fn opens_path(self) -> bool {
        matches!(self, Word::Dso | Word::NameSpace | Word::Pipe | Word::Socket | Word::Watch)
    }
}
