//! Scripts that fail, hang, print too much, or leave processes behind.

use crate::rng::Rng;

/// Scripts. `DOCUMENT` is the path of a damaged document.
const SCRIPTS: [&str; 20] = [
    "#!/bin/sh\ncat DOCUMENT\n",
    "#!/bin/sh\ncat DOCUMENT\n",
    "#!/bin/sh\ncat DOCUMENT DOCUMENT DOCUMENT >&2\necho a 1\n",
    "#!/bin/sh\nexit 3\n",
    "#!/bin/sh\nkill -9 $$\n",
    "#!/bin/sh\nsleep 100\n",
    "#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done\n",
    "#!/bin/sh\nsleep 100 &\necho a 1\n",
    "#!/bin/sh\nsleep 100 >/dev/null 2>&1 &\necho a 1\n",
    "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do sleep 100 >/dev/null 2>&1 & done\necho a 1\n",
    "#!/bin/sh\nexec >&-\nsleep 100\n",
    "#!/bin/sh\nexec yes 'a 1'\n",
    "#!/bin/sh\nexec yes >&2\n",
    "#!/bin/sh\nexec cat /dev/zero\n",
    "#!/bin/sh\nwhile :; do echo a 1; sleep 0.05; done\n",
    "#!/nonexistent/interpreter\n",
    "",
    "\u{7f}ELF",
    "#!/bin/sh\nkill -STOP $$\necho a 1\n",
    "#!/bin/sh\ncat; echo a 1; head -c 300000 /dev/zero | tr '\\0' 'b'\n",
];

/// Returns the text of a script.
pub(super) fn script(rng: &mut Rng, document: &str) -> String {
    rng.pick(&SCRIPTS).replace("DOCUMENT", document)
}
