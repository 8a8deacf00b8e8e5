//! Simple commands in shell text, as far as documentation needs them.

/// A word of a command, or an operator that ends one.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    End,
    Redirect,
}

/// The commands in a text: the words of each, without quotes, assignments, redirections and comments. Commands in
/// `$(...)` follow the command that contains them, in which they are one word: `$(...)`.
#[must_use]
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut inner = Vec::new();
    let tokens = Lexer { rest: text, heredoc: None, inner: &mut inner }.tokens();
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let mut is_target = false;
    for token in tokens {
        match token {
            Token::End => found.push(Vec::new()),
            Token::Redirect => is_target = true,
            Token::Word(_) if std::mem::take(&mut is_target) => {}
            Token::Word(word) => {
                if let Some(command) = found.last_mut() {
                    command.push(word);
                }
            }
        }
    }
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut found: Vec<Vec<String>> =
        found.into_iter().map(|words| words.into_iter().skip_while(is_assignment).collect()).collect();
    found.retain(|words: &Vec<String>| !words.is_empty());
    found.extend(inner.iter().flat_map(|text| commands(text)));
    found
}

struct Lexer<'a> {
    rest: &'a str,
    /// The delimiter of a here-document whose text begins at the next line.
    heredoc: Option<String>,
    inner: &'a mut Vec<String>,
}

impl Lexer<'_> {
    fn tokens(mut self) -> Vec<Token> {
        let mut tokens = Vec::new();
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\n' => {
                    self.skip(1);
                    tokens.push(Token::End);
                    self.skip_heredoc();
                }
                _ if c.is_whitespace() => self.skip(c.len_utf8()),
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
                '&' if self.rest.starts_with("&>") => self.redirect(2, &mut tokens),
                ';' | '|' | '&' | '(' | ')' => {
                    self.skip(1);
                    tokens.push(Token::End);
                }
                '<' | '>' => {
                    let length = self.rest.len() - self.rest.trim_start_matches(['<', '>', '&']).len();
                    let is_heredoc = self.rest.starts_with("<<") && !self.rest.starts_with("<<<");
                    self.redirect(length, &mut tokens);
                    if is_heredoc {
                        let name: String = self.rest.chars().take_while(|c| !c.is_whitespace()).collect();
                        self.heredoc = Some(name.trim_matches(['\'', '"', '-']).to_owned());
                    }
                }
                _ => {
                    let word = self.word();
                    // The number of a descriptor: `2>&1`.
                    let is_descriptor = word.len() == 1 && word.as_bytes()[0].is_ascii_digit();
                    if !(is_descriptor && self.rest.starts_with(['<', '>'])) {
                        tokens.push(Token::Word(word));
                    }
                }
            }
        }
        tokens
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn redirect(&mut self, length: usize, tokens: &mut Vec<Token>) {
        self.skip(length);
        tokens.push(Token::Redirect);
    }

    fn skip_heredoc(&mut self) {
        let Some(end) = self.heredoc.take() else { return };
        while !self.rest.is_empty() {
            let line = self.rest.split_inclusive('\n').next().unwrap_or_default();
            self.skip(line.len());
            if line.trim_end() == end {
                break;
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\'' => {
                    let text = self.rest[1..].split('\'').next().unwrap_or_default();
                    word.push_str(text);
                    self.skip((text.len() + 2).min(self.rest.len()));
                }
                '"' => self.quoted(&mut word),
                '$' if self.rest.starts_with("$(") => self.substitution(&mut word),
                '\\' if self.rest.starts_with("\\\n") => break,
                '\\' => {
                    self.skip(1);
                    self.push(&mut word);
                }
                _ if c.is_whitespace() || ";|&()<>".contains(c) => break,
                _ => self.push(&mut word),
            }
        }
        word
    }

    fn push(&mut self, word: &mut String) {
        if let Some(c) = self.rest.chars().next() {
            word.push(c);
            self.skip(c.len_utf8());
        }
    }

    fn quoted(&mut self, word: &mut String) {
        self.skip(1);
        while let Some(c) = self.rest.chars().next() {
            match c {
                '"' => return self.skip(1),
                '$' if self.rest.starts_with("$(") => self.substitution(word),
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                '\\' => {
                    self.skip(1);
                    self.push(word);
                }
                _ => self.push(word),
            }
        }
    }

    fn substitution(&mut self, word: &mut String) {
        let (mut depth, mut end) = (0_usize, self.rest.len());
        for (at, c) in self.rest.char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth == 1 => {
                    end = at + 1;
                    break;
                }
                ')' => depth -= 1,
                _ => {}
            }
        }
        self.inner.push(self.rest[2..end].trim_end_matches(')').to_owned());
        word.push_str("$(...)");
        self.skip(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        commands(text).iter().map(|words| words.join("\u{b7}")).collect()
    }

    #[test]
    fn words_are_those_of_the_shell() {
        assert_eq!(
            found("stoke submit greet --input '{\"a\": \"b c\"}' --wait  # and so on"),
            ["stoke·submit·greet·--input·{\"a\": \"b c\"}·--wait"]
        );
        assert_eq!(
            found("A=1 B=\"x y\" stoke dev 2>&1 | head -3; stoke fleet && stoke top > file"),
            ["stoke·dev", "head·-3", "stoke·fleet", "stoke·top"]
        );
        assert_eq!(
            found("export T=$(stoke token create --name me)"),
            ["export·T=$(...)", "stoke·token·create·--name·me"]
        );
        assert_eq!(found("curl a \\\n  -d \"{\\\"b\\\": 1}\"\nread -r X"), ["curl·a·-d·{\"b\": 1}", "read·-r·X"]);
        assert_eq!(
            found("tee -a file <<'EOF'\nstoke is no command here\nEOF\nstoke fleet"),
            ["tee·-a·file", "stoke·fleet"]
        );
    }
}
