//! Just enough of a reader of Rust source to see which paths and keywords its code uses.

/// A word (identifier, keyword, number) or a single sign; `::` is one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(String),
    Sign(char),
    PathSeparator,
}

/// The code of a file without comments, strings, characters, and what is behind `#[cfg(test)]`.
pub struct Code {
    pub tokens: Vec<Token>,
    /// Modules behind `#[cfg(test)]` that live in a file of their own.
    pub test_modules: Vec<String>,
}

impl Code {
    pub fn read(source: &str) -> Code {
        without_tests(&tokens(source))
    }

    /// True when the code has this word.
    pub fn has_word(&self, word: &str) -> bool {
        self.tokens.iter().any(|t| matches!(t, Token::Word(w) if w == word))
    }

    /// True when the code calls this macro.
    pub fn has_macro(&self, name: &str) -> bool {
        self.tokens.windows(2).any(|t| t[0] == Token::Word(name.into()) && t[1] == Token::Sign('!'))
    }

    /// Every path that starts with `std` or `core`, groups unfolded: `std::{fs, time::Instant}` is `std::fs` and
    /// `std::time::Instant`. A glob ends in `*`.
    pub fn std_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (i, token) in self.tokens.iter().enumerate() {
            let starts = matches!(token, Token::Word(w) if w == "std" || w == "core");
            let inside = i > 0
                && (self.tokens[i - 1] == Token::Sign('.')
                    || (self.tokens[i - 1] == Token::PathSeparator
                        && i > 1
                        && matches!(&self.tokens[i - 2], Token::Word(w) if w != "use")));
            if starts && !inside {
                unfold(&self.tokens, i, "", &mut paths);
            }
        }
        paths
    }
}

/// Reads one use tree at `at`, appends its paths to `found`, and returns where it ends.
fn unfold(tokens: &[Token], at: usize, prefix: &str, found: &mut Vec<String>) -> usize {
    let join = |word: &str| if prefix.is_empty() { word.to_owned() } else { format!("{prefix}::{word}") };
    match tokens.get(at) {
        Some(Token::Word(word)) => {
            let path = if word == "self" { prefix.to_owned() } else { join(word) };
            let more = matches!(tokens.get(at + 2), Some(Token::Word(_) | Token::Sign('{' | '*')));
            if tokens.get(at + 1) == Some(&Token::PathSeparator) && more {
                return unfold(tokens, at + 2, &path, found);
            }
            found.push(path);
            at + 1
        }
        Some(Token::Sign('*')) => {
            found.push(join("*"));
            at + 1
        }
        Some(Token::Sign('{')) => {
            let mut at = at + 1;
            while at < tokens.len() && tokens[at] != Token::Sign('}') {
                let separator = matches!(&tokens[at], Token::Sign(_)) && tokens[at] != Token::Sign('*');
                let renamed = at > 0 && tokens[at - 1] == Token::Word("as".into());
                let keyword = tokens[at] == Token::Word("as".into());
                at = if separator || renamed || keyword { at + 1 } else { unfold(tokens, at, prefix, found) };
            }
            at + 1
        }
        _ => at + 1,
    }
}

fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            i = skip_block_comment(&chars, i);
        } else if c == '"' {
            i = skip_string(&chars, i + 1);
        } else if c == '\'' {
            i = skip_char_or_lifetime(&chars, i);
        } else if word(c) {
            let start = i;
            while word(at(i)) {
                i += 1;
            }
            let text: String = chars[start..i].iter().collect();
            let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
            if matches!(text.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                i = skip_raw_string(&chars, i + hashes + 1, hashes);
            } else if matches!(text.as_str(), "b" | "c") && at(i) == '"' {
                i = skip_string(&chars, i + 1);
            } else {
                tokens.push(Token::Word(text));
            }
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push(Token::PathSeparator);
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(Token::Sign(c));
            }
            i += 1;
        }
    }
    tokens
}

fn skip_block_comment(chars: &[char], mut i: usize) -> usize {
    let mut depth = 0;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    i
}

fn skip_string(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn skip_raw_string(chars: &[char], mut i: usize, hashes: usize) -> usize {
    while i < chars.len() {
        if chars[i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

fn skip_char_or_lifetime(chars: &[char], i: usize) -> usize {
    match (chars.get(i + 1), chars.get(i + 2)) {
        (Some('\\'), _) => {
            let mut end = i + 3;
            while end < chars.len() && chars[end] != '\'' {
                end += 1;
            }
            end + 1
        }
        (Some(_), Some('\'')) => i + 3,
        // A lifetime: its name follows as a word, which does no harm.
        _ => i + 1,
    }
}

/// Leaves out every item that `#[cfg(test)]` stands before.
fn without_tests(all: &[Token]) -> Code {
    let word = |w: &str| Token::Word(w.into());
    let attribute = [
        Token::Sign('#'),
        Token::Sign('['),
        word("cfg"),
        Token::Sign('('),
        word("test"),
        Token::Sign(')'),
        Token::Sign(']'),
    ];
    let mut code = Code { tokens: Vec::new(), test_modules: Vec::new() };
    let mut i = 0;
    while i < all.len() {
        if !all[i..].starts_with(&attribute) {
            code.tokens.push(all[i].clone());
            i += 1;
            continue;
        }
        i += attribute.len();
        let item = i;
        while i < all.len() && all[i] != Token::Sign('{') && all[i] != Token::Sign(';') {
            i += 1;
        }
        if all.get(i) == Some(&Token::Sign(';')) {
            if let [.., Token::Word(keyword), Token::Word(name)] = &all[item..i]
                && keyword == "mod"
            {
                code.test_modules.push(name.clone());
            }
            i += 1;
            continue;
        }
        let mut depth = 0;
        while i < all.len() {
            match all[i] {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 {
                break;
            }
        }
    }
    code
}
