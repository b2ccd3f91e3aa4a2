//! Paths, macros and keywords that the code of a file uses. `proc-macro2` reads the tokens, so comments and strings do not count.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The code of a file without what is behind `#[cfg(test)]`.
pub struct Code {
    code: TokenStream,
    /// Modules behind `#[cfg(test)]` that are in a separate file.
    pub test_modules: Vec<String>,
}

impl Code {
    /// Panics if `source` is not Rust.
    pub fn read(source: &str) -> Code {
        let mut test_modules = Vec::new();
        let code = without_tests(source.parse().expect("Rust"), &mut test_modules);
        Code { code, test_modules }
    }

    /// True when the code has this word.
    pub fn has_word(&self, word: &str) -> bool {
        any(&self.code, &|tokens| is_word(&tokens[0], word))
    }

    /// True when the code calls this macro.
    pub fn has_macro(&self, name: &str) -> bool {
        any(&self.code, &|tokens| is_word(&tokens[0], name) && tokens.get(1).is_some_and(|t| is_sign(t, '!')))
    }

    /// Every path that starts with `std` or `core`, groups unfolded: `std::{fs, time::Instant}` is `std::fs` and
    /// `std::time::Instant`. A glob ends in `*`.
    pub fn std_paths(&self) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        any(&self.code, &|tokens| {
            if is_word(&tokens[0], "std") || is_word(&tokens[0], "core") {
                unfold(tokens, "", &mut found.borrow_mut());
            }
            false
        });
        found.into_inner()
    }
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// True if `found` holds for the tokens from some position to the end of their group.
fn any(code: &TokenStream, found: &dyn Fn(&[TokenTree]) -> bool) -> bool {
    let tokens: Vec<_> = code.clone().into_iter().collect();
    (0..tokens.len()).any(|i| {
        let inside = if let TokenTree::Group(group) = &tokens[i] { any(&group.stream(), found) } else { false };
        inside || found(&tokens[i..])
    })
}

/// Appends the paths of the use tree at the front of `tokens`.
fn unfold(tokens: &[TokenTree], prefix: &str, found: &mut Vec<String>) {
    let join = |word: &str| if prefix.is_empty() { word.to_owned() } else { format!("{prefix}::{word}") };
    match tokens {
        [TokenTree::Ident(word), a, b, rest @ ..]
            if is_sign(a, ':') && is_sign(b, ':') && rest.first().is_some_and(|t| !is_sign(t, '<')) =>
        {
            unfold(rest, &join(&word.to_string()), found)
        }
        [TokenTree::Ident(word), ..] if word == "self" => found.push(prefix.to_owned()),
        [TokenTree::Ident(word), ..] => found.push(join(&word.to_string())),
        [TokenTree::Group(group), ..] => {
            let parts: Vec<_> = group.stream().into_iter().collect();
            parts.split(|t| is_sign(t, ',')).for_each(|part| unfold(part, prefix, found));
        }
        [sign, ..] if is_sign(sign, '*') => found.push(join("*")),
        _ => {}
    }
}

/// Leaves out every item after a `#[cfg(test)]`.
fn without_tests(code: TokenStream, modules: &mut Vec<String>) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = code.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let attribute = tokens.peek().filter(|_| is_sign(&token, '#')).map(|t| t.to_string().replace(' ', ""));
        if attribute.as_deref() == Some("[cfg(test)]") {
            let mut item = Vec::new();
            for token in tokens.by_ref() {
                item.push(token.to_string());
                if is_sign(&token, ';') || matches!(&token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace) {
                    break;
                }
            }
            if let [.., keyword, name, end] = &item[..]
                && (keyword == "mod" && end == ";")
            {
                modules.push(name.clone());
            }
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => Group::new(group.delimiter(), without_tests(group.stream(), modules)).into(),
            other => other,
        });
    }
    kept.into_iter().collect()
}
