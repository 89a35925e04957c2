use std::time::{Duration, Instant};

use pcp_pdu::result::RawValue;
use pmapi::{Desc, Domain, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fleet::{Agent, Status};
use crate::model::{Board, Metric, Reading, Readings, Value};

#[test]
fn keys() {
    let key = |code| action(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!(key(KeyCode::Char('q')), Some(Action::Quit));
    assert_eq!(key(KeyCode::Char('c')), None);
    assert_eq!(action(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
    assert_eq!(key(KeyCode::PageDown), Some(Action::Page(1)));
}

fn domain() -> Domain {
    Domain::new(42).unwrap()
}

fn metric(item: u16, name: &str, ty: Type, semantics: Semantics, indom: Option<u32>) -> Metric {
    let indom = indom.map(|serial| InDom::new(domain(), Serial::new(serial)));
    let units = if semantics == Semantics::Counter { Units::KBYTES } else { Units::NONE };
    let desc = Desc { pmid: PmId::new(domain(), Item::new(0, item)), ty, indom, semantics, units };
    Metric { name: name.to_owned(), oneline: "What it is".to_owned(), desc: Ok(desc) }
}

fn reading(inst: Option<(u32, &str)>, value: i32) -> Reading {
    Reading {
        inst: inst.map(|(inst, _)| Inst::new(inst)),
        instance: inst.map(|(_, name)| name.to_owned()).unwrap_or_default(),
        value: Value::new(RawValue::InSitu(value as u32), Type::I32),
    }
}

fn text(text: &str) -> Readings {
    let value = Value::new(RawValue::Block(6, text.as_bytes()), Type::String);
    Ok(vec![Reading { inst: None, instance: String::new(), value }])
}

/// Returns an agent with two samples, a second apart, of metrics of every kind, and an agent that has ended.
fn agents() -> [Agent; 2] {
    let mut board = Board::default();
    board.set_metrics(vec![
        metric(0, "demo.count", Type::I32, Semantics::Counter, None),
        metric(1, "demo.level", Type::I32, Semantics::Instant, Some(0)),
        metric(2, "demo.text", Type::String, Semantics::Discrete, None),
        metric(3, "demo.broken", Type::I32, Semantics::Instant, None),
        metric(4, "demo.empty", Type::I32, Semantics::Instant, None),
    ]);
    let start = Instant::now();
    let failed = || Err(pmapi::Error::PERMISSION);
    board.update(
        start,
        vec![
            Ok(vec![reading(None, 10)]),
            Ok(vec![reading(Some((0, "left")), 5), reading(Some((1, "right")), 7)]),
            text("on"),
            failed(),
            Ok(vec![]),
        ],
    );
    board.update(
        start + Duration::from_secs(1),
        vec![
            Ok(vec![reading(None, 14)]),
            Ok(vec![reading(Some((0, "left")), 3), reading(Some((1, "right")), 7)]),
            text("off"),
            failed(),
            Ok(vec![]),
        ],
    );
    let ended = Status::Failed("the agent has closed the connection".to_owned());
    let pid = Some(4711);
    [
        Agent::idle("demo", Some(domain()), Status::Running, board, pid),
        Agent::idle("other", None, ended, Board::default(), pid),
    ]
}

/// Draws the screen. Leaves out the first line, which contains the time.
fn screen(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view.draw(frame, &agents())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (1..rows).map(line).collect()
}

#[test]
fn eighty_columns() {
    let mut view = View::new(Duration::from_secs(1));
    let expected = "
 ● demo ────────────────────────────────────── domain 42 · pid 4711 · 5 metrics
 demo.count  What it is                                   i32 · counter · Kbyte
                ▲                   14        4 Kbyte/s                       █
 demo.level  What it is                                    i32 · instant · none
   left         ▼                    3               -2                      █▁
   right                             7                                       ▄▄
 demo.text  What it is                                 string · discrete · none
                ● \"off\"
 demo.broken  What it is                                   i32 · instant · none
   No permission to perform requested operation
 demo.empty  What it is                                    i32 · instant · none
   no values
 ✖ other ───────────────────────────────────────────────────── pid 4711 · ended
   the agent has closed the connection

 q quit · space pause · ↑ ↓ PgUp PgDn Tab scroll · / filter · ? keys";
    assert_eq!(screen(&mut view, 80, 17).join("\n"), expected.trim_start_matches('\n'));
}

#[test]
fn scrolling_keeps_the_heading() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 6);
    view.act(Action::Scroll(5));
    let shown = screen(&mut view, 80, 6);
    assert!(shown[0].starts_with(" demo.level"), "{shown:?}");
    assert!(shown[1].starts_with(" demo.text"), "{shown:?}");
    assert!(shown[4].ends_with("6–9 of 14"), "{shown:?}");
    view.act(Action::Bottom);
    assert!(screen(&mut view, 80, 6)[4].ends_with("11–14 of 14"));
    view.act(Action::Page(-1));
    assert!(screen(&mut view, 80, 6)[4].ends_with("8–11 of 14"));
    view.act(Action::Top);
    assert!(screen(&mut view, 80, 6)[4].ends_with("1–4 of 14"));
}

#[test]
fn a_filter_leaves_names_that_contain_it() {
    let mut view = View::new(Duration::from_secs(1));
    let keys = |view: &mut View, codes: &[KeyCode]| {
        for code in codes {
            let key = KeyEvent::new(*code, KeyModifiers::NONE);
            view.act(if view.typing { typed(key) } else { action(key) }.unwrap());
        }
        screen(view, 80, 8)
    };
    // While the filter is typed, letters are no commands.
    let shown = keys(&mut view, &[KeyCode::Char('/'), KeyCode::Char('e'), KeyCode::Char('q'), KeyCode::Backspace]);
    assert_eq!(shown[6], " names with: e▏ Enter · Esc shows all                                 1–6 of 14");
    let shown = keys(&mut view, &[KeyCode::Char('x'), KeyCode::Enter]);
    let expected = "
 ● demo ────────────────────────────────────── domain 42 · pid 4711 · 5 metrics
 demo.text  What it is                                 string · discrete · none
                ● \"off\"
 ✖ other ───────────────────────────────────────────────────── pid 4711 · ended
   the agent has closed the connection

 names with \"ex\" · / Esc shows all · ? keys";
    assert_eq!(shown.join("\n"), expected.trim_start_matches('\n'));
    keys(&mut view, &[KeyCode::Char('/'), KeyCode::Esc]);
    assert!(screen(&mut view, 80, 8)[1].starts_with(" demo.count"));
}

#[test]
fn tab_shows_the_next_agent_and_a_question_mark_the_keys() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 4);
    view.act(Action::NextAgent);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ✖ other"));
    view.act(Action::NextAgent);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ● demo"));
    // The last agent may be too short to begin at the top.
    for first in [" demo.level", " ● demo"] {
        view.act(Action::NextAgent);
        assert!(screen(&mut view, 80, 11)[0].starts_with(first));
    }
    view.act(Action::Keys);
    assert!(screen(&mut view, 80, 12)[6].starts_with("   Tab           to the next agent"));
    view.act(Action::Keys);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ● demo"));
}

#[test]
fn any_size_of_the_screen() {
    let mut view = View::new(Duration::from_secs(1));
    for columns in [1, 2, 7, 20, 39, 59, 61, 99, 100, 300] {
        for rows in [1, 2, 3, 10, 60] {
            let shown = screen(&mut view, columns, rows);
            assert_eq!(shown.len(), usize::from(rows) - 1);
        }
    }
}
