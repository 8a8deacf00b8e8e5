//! The verdict as JUnit XML for Jenkins, GitLab and others, with one test case per limit.

use std::fmt::Write;

use super::verdict::Verdict;

pub(super) fn report(endpoint: &str, version: u32, verdict: &Verdict) -> String {
    let failures = verdict.checks.iter().filter(|check| !check.passed).count();
    let suite = format!("{endpoint}@{version}");
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{suite}\" tests=\"{}\" failures=\"{failures}\">\n",
        verdict.checks.len()
    );
    for check in &verdict.checks {
        let [measured, limit] = check.words();
        // Writing to a string cannot fail.
        let _ = write!(xml, "  <testcase classname=\"stoke.gate.{suite}\" name=\"{}\">", check.title());
        if !check.passed {
            let _ = write!(xml, "<failure message=\"{measured}, {limit}\">");
            for line in &verdict.not_passed {
                let _ = writeln!(xml, "line {}: {}", line.line, escaped(&line.why));
            }
            xml.push_str("</failure>");
        }
        xml.push_str("</testcase>\n");
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Escapes text from handlers for XML 1.0, which allows no control characters but tabs and line ends.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '\t' | '\n' => safe.push(character),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ if character.is_control() => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Check, Line};
    use super::*;

    #[test]
    fn a_limit_is_a_test_case_and_what_a_handler_said_breaks_no_xml() {
        let check = |name, measured, passed| Check { name, measured: Some(measured), limit: 0.98, passed };
        let not_passed = vec![Line { line: 3, why: "ValueError: <a> & ]]>\u{1b}[31m".to_owned() }];
        let checks = vec![check("success", 0.5, false), check("p95_ms", 0.5, true)];
        let xml = report("greet", 8, &Verdict { lines: 2, lines_passed: 1, checks, not_passed });
        assert!(xml.contains("<testsuite name=\"greet@8\" tests=\"2\" failures=\"1\">"), "{xml}");
        assert!(xml.contains(
            "<failure message=\"50.0 %, at least 98.0 %\">line 3: ValueError: &lt;a&gt; &amp; ]]&gt;\u{fffd}[31m"
        ));
        assert_eq!(xml.matches("<testcase").count(), 2);
    }
}
