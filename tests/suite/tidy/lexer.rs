//! Tokens and comments of a file, with line numbers.

use std::iter::Peekable;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree, token_stream};

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
        let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut lexer =
            Lexer { lines: text.lines().map(|line| line.chars().collect()).collect(), tokens: vec![] };
        lexer.flatten(stream.into_iter().peekable());
        // Literals are blank by now: what is left of two slashes are comments.
        let comment = |line: &Vec<char>| {
            let slash = line.windows(2).position(|pair| matches!(pair, ['/', '/' | '*']));
            slash.map_or(String::new(), |at| line[at..].iter().collect())
        };
        let mut comments = vec![String::new()];
        comments.extend(lexer.lines.iter().map(comment));
        comments.push(String::new());
        let mut tokens = lexer.tokens;
        let test_files = mark_modules(&mut tokens);
        Source { path: path.into(), tokens, comments, test_files }
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

struct Lexer {
    lines: Vec<Vec<char>>,
    tokens: Vec<Token>,
}

impl Lexer {
    fn push(&mut self, text: &str, span: Span) {
        let line = span.start().line;
        self.tokens.push(Token { text: text.into(), line, ground: Ground::Code, inline_mods: vec![] });
    }

    /// Takes groups apart and joins `::`. Lifetimes keep their mark only.
    fn flatten(&mut self, mut trees: Peekable<token_stream::IntoIter>) {
        while let Some(tree) = trees.next() {
            let span = tree.span();
            match tree {
                _ if self.is_comment(&tree) => {}
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Parenthesis | Delimiter::None => ("(", ")"),
                    };
                    self.push(open, group.span_open());
                    self.flatten(group.stream().into_iter().peekable());
                    self.push(close, group.span_close());
                }
                TokenTree::Literal(literal) => {
                    self.push(&literal.to_string(), span);
                    self.blank(span);
                }
                TokenTree::Ident(ident) => self.push(&ident.to_string(), span),
                TokenTree::Punct(punct) => {
                    let is_path =
                        |next: &TokenTree| matches!(next, TokenTree::Punct(next) if next.as_char() == ':');
                    match punct.as_char() {
                        ':' if trees.next_if(is_path).is_some() => self.push("::", span),
                        '\'' => {
                            trees.next();
                            self.push("'", span);
                        }
                        other => self.push(&other.to_string(), span),
                    }
                }
            }
        }
    }

    /// Comments of documentation come as attributes, at the place of the comment.
    fn is_comment(&self, tree: &TokenTree) -> bool {
        let (span, mark) = match tree {
            TokenTree::Group(group) => (group.span_open(), '['),
            TokenTree::Punct(punct) => (punct.span(), punct.as_char()),
            TokenTree::Ident(_) | TokenTree::Literal(_) => return false,
        };
        let start = span.start();
        mark != '/' && self.lines.get(start.line - 1).and_then(|line| line.get(start.column)) == Some(&'/')
    }

    fn blank(&mut self, span: Span) {
        let (start, end) = (span.start(), span.end());
        for (index, line) in self.lines.iter_mut().enumerate().take(end.line).skip(start.line - 1) {
            let from = if index + 1 == start.line { start.column } else { 0 };
            let to = if index + 1 == end.line { end.column } else { line.len() };
            line[from..to].fill(' ');
        }
    }
}
