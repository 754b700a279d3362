//! Just enough of Rust's lexical grammar to tell code from comments and literals, with line numbers.

use std::iter::Peekable;
use std::str::Chars;

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In shipped code.
    Code,
    /// In a `#[cfg(test)]` module.
    Test,
}

/// A word, a number, a literal, `::`, or one character of punctuation.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) ground: Ground,
    /// Inline modules (`mod x { .. }`) around the token.
    pub(crate) inline_mods: Vec<String>,
}

/// One file, taken apart.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the package, with forward slashes.
    pub(crate) path: String,
    pub(crate) tokens: Vec<Token>,
    /// Comment text by line, counted from 1 (entry 0 stays empty).
    pub(crate) comments: Vec<String>,
    /// Names of `#[cfg(test)] mod x;`: files that are tests.
    pub(crate) test_files: Vec<String>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: &str) -> Source {
        let mut lexer = Lexer { chars: text.chars().peekable(), line: 1, tokens: vec![], comments: vec![] };
        lexer.comments.resize(text.lines().count() + 2, String::new());
        while lexer.step() {}
        let mut tokens = lexer.tokens;
        let test_files = mark_modules(&mut tokens);
        Source { path: path.into(), tokens, comments: lexer.comments, test_files }
    }

    pub(crate) fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &token.text)
    }

    /// Whether the tokens from `index` on are these.
    pub(crate) fn matches(&self, index: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, word)| self.text(index + i) == *word)
    }

    /// Index just after the bracket that closes the one at `open`.
    pub(crate) fn behind_bracket(&self, open: usize) -> usize {
        behind_bracket(&self.tokens, open)
    }

    /// Lines that hold shipped code.
    pub(crate) fn code_lines(&self) -> usize {
        let mut lines: Vec<usize> =
            self.tokens.iter().filter(|t| t.ground == Ground::Code).map(|t| t.line).collect();
        lines.dedup();
        lines.len()
    }
}

fn behind_bracket(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Finds inline modules and marks what is inside them. Returns the names of test modules in files of their own.
fn mark_modules(tokens: &mut [Token]) -> Vec<String> {
    let mut test_files = vec![];
    let mut test_attribute = false;
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index].text == "#" && tokens.get(index + 1).is_some_and(|t| t.text == "[") {
            let end = behind_bracket(tokens, index + 1);
            let words: Vec<&str> = tokens[index..end].iter().map(|t| t.text.as_str()).collect();
            let without = words.windows(3).any(|three| three == ["not", "(", "test"]);
            test_attribute |= words.contains(&"cfg") && words.contains(&"test") && !without;
            index = end;
            continue;
        }
        if tokens[index].text == "mod" && tokens.get(index + 2).is_some_and(|t| t.text == "{") {
            let name = tokens[index + 1].text.clone();
            let end = behind_bracket(tokens, index + 2);
            for token in &mut tokens[index..end] {
                token.inline_mods.push(name.clone());
                if test_attribute {
                    token.ground = Ground::Test;
                }
            }
        }
        let in_a_file = tokens[index].text == "mod" && tokens.get(index + 2).is_some_and(|t| t.text == ";");
        if test_attribute && in_a_file {
            test_files.push(tokens[index + 1].text.clone());
        }
        if !matches!(tokens[index].text.as_str(), "pub" | "(" | "crate" | "super" | ")") {
            test_attribute = false;
        }
        index += 1;
    }
    test_files
}

struct Lexer<'t> {
    chars: Peekable<Chars<'t>>,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<String>,
}

impl Lexer<'_> {
    fn bump(&mut self) -> Option<char> {
        let next = self.chars.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn peek_second(&self) -> Option<char> {
        self.chars.clone().nth(1)
    }

    fn push(&mut self, text: String, line: usize) {
        self.tokens.push(Token { text, line, ground: Ground::Code, inline_mods: vec![] });
    }

    fn step(&mut self) -> bool {
        let Some(&next) = self.chars.peek() else { return false };
        let line = self.line;
        match next {
            '/' if self.peek_second() == Some('/') => self.line_comment(),
            '/' if self.peek_second() == Some('*') => self.block_comment(),
            '"' => {
                let text = self.string();
                self.push(text, line);
            }
            '\'' => self.quote(line),
            ':' if self.peek_second() == Some(':') => {
                self.bump();
                self.bump();
                self.push("::".into(), line);
            }
            c if c.is_alphanumeric() || c == '_' => self.word(line),
            c if c.is_whitespace() => {
                self.bump();
            }
            c => {
                self.bump();
                self.push(c.to_string(), line);
            }
        }
        true
    }

    fn line_comment(&mut self) {
        while let Some(&c) = self.chars.peek() {
            if c == '\n' {
                break;
            }
            self.bump();
            self.comments[self.line].push(c);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            let pair = (self.chars.peek().copied(), self.peek_second());
            let Some(c) = self.bump() else { return };
            if c != '\n' {
                self.comments[self.line].push(c);
            }
            match pair {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => continue,
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) -> String {
        let mut text = String::from("\"");
        self.bump();
        while let Some(c) = self.bump() {
            text.push(c);
            match c {
                '\\' => text.extend(self.bump()),
                '"' => break,
                _ => {}
            }
        }
        text
    }

    fn raw_string(&mut self, line: usize) {
        let mut hashes = 0;
        while self.chars.peek() == Some(&'#') {
            hashes += 1;
            self.bump();
        }
        let mut text = String::from("\"");
        self.bump();
        let end = format!("\"{}", "#".repeat(hashes));
        while let Some(c) = self.bump() {
            text.push(c);
            if text.len() > end.len() && text.ends_with(&end) {
                break;
            }
        }
        self.push(text, line);
    }

    /// A lifetime or a character.
    fn quote(&mut self, line: usize) {
        self.bump();
        let first = self.bump();
        if first == Some('\\') {
            self.bump();
            while self.bump().is_some_and(|c| c != '\'') {}
            self.push("'c'".into(), line);
        } else if self.chars.peek() == Some(&'\'') {
            self.bump();
            self.push("'c'".into(), line);
        } else {
            self.push("'".into(), line);
            while self.chars.peek().is_some_and(|c| c.is_alphanumeric() || *c == '_') {
                self.bump();
            }
        }
    }

    fn word(&mut self, line: usize) {
        let mut text = String::new();
        while let Some(&c) = self.chars.peek() {
            if !c.is_alphanumeric() && c != '_' {
                break;
            }
            text.push(c);
            self.bump();
        }
        let raw_follows = match self.chars.peek() {
            Some('"') => true,
            Some('#') => matches!(self.peek_second(), Some('"' | '#')),
            _ => false,
        };
        match text.as_str() {
            "r" | "br" | "cr" if raw_follows => self.raw_string(line),
            "b" | "c" if self.chars.peek() == Some(&'"') => {
                let text = self.string();
                self.push(text, line);
            }
            "b" if self.chars.peek() == Some(&'\'') => self.quote(line),
            _ => self.push(text, line),
        }
    }
}
