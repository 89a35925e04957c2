# Common code of packaging/deb and packaging/rpm: options, build, and the files of a package. Both run it with ".".

here=$PWD/packaging
kind=${0##*/}
# show TEXT: prints a text in one line of printable ASCII; other bytes, which could control a terminal, become \ooo.
show() { printf %s "$1" | tr '\n' ' ' | LC_ALL=C sed -n 'l 0' | sed 's/\$$//'; }
fail() { printf '%s\n' "packaging/$kind: $(show "$1")" >&2; exit "${2:-1}"; }
usage() { sed -n '/^# Usage/,/^$/s/^# \{0,1\}//p' "$here/$kind"; }

output=target/packages bin='' version=''
options()
{
    while [ $# -gt 0 ]
    do
        case $1 in
            --output | --bin | --version) [ $# -gt 1 ] && [ -n "$2" ] || fail "$1 needs a value." 2 ;;
        esac
        case $1 in
            --output) output=$2; shift ;;
            --bin) bin=$2; shift ;;
            --version) version=$2; shift ;;
            '-?' | --help) usage; exit ;;
            *) fail "unknown argument $1 (packaging/$kind --help lists the options)" 2 ;;
        esac
        shift
    done
    [ -n "$version" ] || version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
    case $version in
        [0-9]*) ;;
        *) fail "--version $version: a version begins with a digit." 2 ;;
    esac
    case $version in
        *[!0-9A-Za-z.+~]*) fail "--version $version: a version has letters, digits, and . + ~ only." 2 ;;
    esac
    mkdir -p "$output" || exit 1
    output=$(cd "$output" && pwd -P) || exit 1
}

needs() { for one; do command -v "$one" >/dev/null || fail "the command $one is missing; apt-get install $package has it."; done; }

# Packages of the workspace whose programs are packaged.
crates="pmda-trivial pmda-simple pmda-showcase pmda-mmv pmda-trace pmda-derived pmda-openmetrics pmda-replay
    pcp-agents pcp-view pcp-tools pcp-dbpmda pcp-mmvdump pcp-pmda-host pcp-pmdumplog pcp-pmlogderive cargo-pmda pcp-manpages
    pcp-mmv-capi"

# Changes of the work tree make the commit "COMMIT+". Without git the programs have no commit.
commit()
{
    git rev-parse --short=12 HEAD 2>/dev/null | tr -d '\n' && { git diff --quiet HEAD 2>/dev/null || printf +; }
}

# build: compiles the programs, unless --bin names them, and writes their man pages. In a target directory of its own,
# because PCP_RS_COMMIT makes cargo compile the crates of this repository again.
build()
{
    PATH=$PATH:$HOME/.cargo/bin
    command -v cargo >/dev/null || fail "there is no cargo; README names ways to get it."
    if [ -z "$bin" ]
    then
        list=''
        for crate in $crates
        do
            list="$list -p $crate"
        done
        PCP_RS_COMMIT=$(commit)
        export PCP_RS_COMMIT
        # shellcheck disable=SC2086
        cargo build --locked --release --target-dir target/packages $list || fail "cargo could not build the programs."
        bin=target/packages/release
    fi
    for file in manpages pmdasimple libpmda_simple.so dbpmda libpcp_mmv.so
    do
        [ -f "$bin/$file" ] || fail "$bin has no $file."
    done
    bin=$(cd "$bin" && pwd -P)
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    umask 022
    mkdir "$work/script" && "$bin/manpages" "$work/pages" || fail "could not write the man pages."
    for file in pcp-rs-pmda default
    do
        sed -e "s|@VERSION@|$version|" -e "s|@DEFAULTS@|/$defaults|" "$here/$file" >"$work/script/$file" || exit 1
    done
    sed -e "s|/etc/default/pcp-rs-agents|/$defaults|g" -i "$work"/pages/man8/* "$work/pages/pcp-rs-pmda.help"
}

# stage PACKAGE ROOT: puts the files of a package into the directory ROOT.
stage()
{
    while read -r package source destination mode
    do
        [ "$package" = "$1" ] || continue
        destination=$(echo "$destination" | sed -e "s|@DEFAULTS@|$defaults|" -e "s|@ZSH@|$zsh|")
        from=$work/$source
        case $source in
            bin/*) from=$bin/${source#bin/} ;;
            link/*)
                mkdir -p "$2/${destination%/*}" && ln -s "${source#link/}" "$2/$destination" || fail "could not link $destination."
                continue
                ;;
        esac
        install -D -m "$mode" "$from" "$2/$destination" || fail "could not copy $source."
        case $source in
            bin/*) strip --strip-unneeded --remove-section=.comment "$2/$destination" || exit 1 ;;
            pages/man*) gzip -9n "$2/$destination" || exit 1 ;;
        esac
    done <"$here/files"
}

# third_party: prints the crates in the programs with their licences, and the text of each licence once.
third_party()
{
    list=''
    for crate in $crates
    do
        list="$list -p $crate"
    done
    sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
    echo "The programs of this package contain these crates:"
    echo
    # shellcheck disable=SC2086
    cargo tree --locked --offline -e normal --prefix none -f '{p}|{l}' $list 2>/dev/null | grep -v ' (/' | sort -u >"$work/crates"
    [ -s "$work/crates" ] || fail "cargo tree does not list the crates."
    sed -e 's/ (proc-macro)//' -e 's/|/: /' "$work/crates"
    mkdir -p "$work/texts"
    while IFS=' |' read -r name number _
    do
        for text in "$sources"/*/"$name-${number#v}"/LICEN[CS]E* "$sources"/*/"$name-${number#v}"/COPYING*
        do
            [ -f "$text" ] || continue
            sum=$(sha256sum <"$text" | cut -c1-32)
            [ -f "$work/texts/$sum" ] || cp "$text" "$work/texts/$sum"
            echo "$name" >>"$work/texts/$sum.crates"
        done
    done <"$work/crates"
    for text in "$work"/texts/*.crates
    do
        printf '\n======== %s\n\n' "$(sort -u "$text" | paste -sd' ')"
        cat "${text%.crates}"
    done
}
