use std::time::{Duration, Instant};

use pcp_pdu::event::Stamp;
use pcp_pdu::result::RawValue;
use pmapi::{Desc, Domain, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;

use super::keys::Direction;
use super::*;
use crate::fleet::{Agent, Status};
use crate::model::{Board, Metric, Reading, Readings, Value};
use crate::stage::Steer;

#[test]
fn each_key_that_is_shown_does_something() {
    let key = |code| keys::action(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!(key(KeyCode::Char('q')), Some(Action::Quit));
    assert_eq!(key(KeyCode::Char('c')), None);
    assert_eq!(keys::action(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
    assert_eq!(key(KeyCode::PageDown), Some(Action::Page(1)));
    let shown = keys::KEYS.iter().flat_map(|line| line[..14].split_whitespace());
    for letter in shown.filter_map(|word| word.chars().next().filter(|_| word.chars().count() == 1)) {
        assert!(key(KeyCode::Char(letter)).is_some(), "{letter}");
    }
}

fn domain() -> Domain {
    Domain::new(42).unwrap()
}

fn metric(item: u16, name: &str, ty: Type, semantics: Semantics, indom: Option<u32>) -> Metric {
    let indom = indom.map(|serial| InDom::new(domain(), Serial::new(serial)));
    let units = if semantics == Semantics::Counter { Units::KBYTES } else { Units::NONE };
    let desc = Desc { pmid: PmId::new(domain(), Item::new(0, item)), ty, indom, semantics, units };
    Metric { oneline: "What it is".to_owned(), ..Metric::new(name.to_owned(), desc.pmid, Ok(desc)) }
}

fn reading(inst: Option<(u32, &str)>, value: i32) -> Reading {
    Reading {
        inst: inst.map(|(inst, _)| Inst::new(inst)),
        instance: inst.map(|(_, name)| name.into()).unwrap_or_default(),
        value: Value::new(RawValue::InSitu(value as u32), Type::I32),
    }
}

fn text(text: &str) -> Readings {
    let value = Value::new(RawValue::Block(6, text.as_bytes()), Type::String);
    Ok(vec![Reading { inst: None, instance: Default::default(), value }])
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

fn terminal(view: &mut View, agents: &[Agent], columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view.draw(frame, agents)).unwrap();
    terminal
}

/// Draws the screen. Leaves out the first line, which contains the time.
fn screen_of(view: &mut View, agents: &[Agent], columns: u16, rows: u16) -> Vec<String> {
    let terminal = terminal(view, agents, columns, rows);
    let buffer = terminal.backend().buffer();
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (1..rows).map(line).collect()
}

fn screen(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
    screen_of(view, &agents(), columns, rows)
}

/// Returns the selected line.
fn selected(view: &mut View, rows: u16) -> String {
    let terminal = terminal(view, &agents(), 80, rows);
    let buffer = terminal.backend().buffer();
    let is_reversed = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
    let y = (1..rows - 1).find(is_reversed).unwrap();
    (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned()
}

fn act(view: &mut View, action: Action) {
    assert!(view.act(action, &agents()));
}

/// Types keys, and returns the screen.
fn keys(view: &mut View, keys: &[KeyCode], rows: u16) -> Vec<String> {
    screen(view, 80, rows);
    for code in keys {
        let key = KeyEvent::new(*code, KeyModifiers::NONE);
        let action = if view.is_typing() { keys::typed(key) } else { keys::action(key) };
        act(view, action.unwrap());
        screen(view, 80, rows);
    }
    screen(view, 80, rows)
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
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

 q quit · space pause · Enter history · / search · f filter · ? keys";
    assert_eq!(screen(&mut view, 80, 17).join("\n"), expected.trim_start_matches('\n'));
}

#[test]
fn a_recording_is_named_in_the_head() {
    let mut view = View::new(Duration::from_secs(1));
    for recorded in [false, true] {
        view.recorded = recorded;
        let terminal = terminal(&mut view, &agents(), 80, 6);
        let head: String = (0..80).map(|x| terminal.backend().buffer()[(x, 0)].symbol()).collect();
        assert_eq!(head.contains("recording · every 1s · sample "), recorded, "{head}");
    }
}

#[test]
fn scrolling_keeps_the_heading() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 6);
    act(&mut view, Action::Scroll(5));
    let shown = screen(&mut view, 80, 6);
    assert!(shown[0].starts_with(" demo.level"), "{shown:?}");
    assert!(shown[1].starts_with(" demo.text"), "{shown:?}");
    assert!(shown[4].ends_with("6–9 of 14"), "{shown:?}");
    assert!(selected(&mut view, 6).starts_with(" demo.text"));
    act(&mut view, Action::Bottom);
    assert!(screen(&mut view, 80, 6)[4].ends_with("11–14 of 14"));
    act(&mut view, Action::Page(-1));
    assert!(selected(&mut view, 6).starts_with(" demo.empty"));
    act(&mut view, Action::Page(-1));
    assert!(screen(&mut view, 80, 6)[4].ends_with("7–10 of 14"));
    act(&mut view, Action::Top);
    assert!(screen(&mut view, 80, 6)[4].ends_with("1–4 of 14"));
    assert!(selected(&mut view, 6).starts_with(" ● demo"));
}

#[test]
fn a_filter_leaves_names_that_contain_it() {
    let mut view = View::new(Duration::from_secs(1));
    // While the filter is typed, letters are no commands.
    let shown = keys(&mut view, &[letters("feq"), vec![KeyCode::Backspace]].concat(), 8);
    assert_eq!(shown[6], " names with: e▏ Enter · Esc shows all                                 1–6 of 14");
    let shown = keys(&mut view, &[KeyCode::Char('x'), KeyCode::Enter], 8);
    let expected = "
 ● demo ────────────────────────────────────── domain 42 · pid 4711 · 5 metrics
 demo.text  What it is                                 string · discrete · none
                ● \"off\"
 ✖ other ───────────────────────────────────────────────────── pid 4711 · ended
   the agent has closed the connection

 names with \"ex\" · f Esc shows all · ? keys";
    assert_eq!(shown.join("\n"), expected.trim_start_matches('\n'));
    assert!(keys(&mut view, &[KeyCode::Esc], 8)[1].starts_with(" demo.count"));
    // Names of instances, too.
    let shown = keys(&mut view, &[letters("fright"), vec![KeyCode::Enter]].concat(), 8);
    assert!(shown[1].starts_with(" demo.level") && shown[2].starts_with("   right"), "{shown:?}");
    keys(&mut view, &[KeyCode::Char('f'), KeyCode::Esc], 8);
    assert!(screen(&mut view, 80, 8)[1].starts_with(" demo.count"));
    // Without a filter, Esc does nothing, and says which key ends the view.
    assert_eq!(keys(&mut view, &[KeyCode::Esc], 8)[6].split("  ").next(), Some(" q or Ctrl-C ends"));
    assert!(!view.act(Action::Quit, &agents()));
}

#[test]
fn a_search_without_a_hit_says_so() {
    let mut view = View::new(Duration::from_secs(1));
    let shown = keys(&mut view, &[letters("/zzz"), vec![KeyCode::Enter]].concat(), 8);
    assert!(shown[6].starts_with(" no line with \"zzz\" "), "{shown:?}");
    assert!(keys(&mut view, &[KeyCode::Down], 8)[6].starts_with(" q quit"));
}

#[test]
fn tab_shows_the_next_agent_and_a_question_mark_the_keys() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 4);
    act(&mut view, Action::NextAgent);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ✖ other"));
    act(&mut view, Action::NextAgent);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ● demo"));
    // If the last agent has few lines, its heading cannot be at the top.
    for (first, at) in [(" demo.level", " ✖ other"), (" ● demo", " ● demo")] {
        act(&mut view, Action::NextAgent);
        assert!(screen(&mut view, 80, 11)[0].starts_with(first));
        assert!(selected(&mut view, 11).starts_with(at));
    }
    act(&mut view, Action::Keys);
    assert!(screen(&mut view, 80, 12)[6].starts_with("   Tab           to the next agent"));
    act(&mut view, Action::Keys);
    assert!(screen(&mut view, 80, 4)[0].starts_with(" ● demo"));
}

#[test]
fn instances_are_sorted() {
    let mut view = View::new(Duration::from_secs(1));
    let order = |view: &mut View| {
        let shown = screen(view, 80, 17);
        let at = |name: &str| shown.iter().position(|line| line.starts_with(name)).unwrap();
        (at(" demo.count") < at(" demo.broken"), at("   left") < at("   right"))
    };
    assert_eq!(order(&mut view), (true, true));
    act(&mut view, Action::Sort);
    assert_eq!(order(&mut view), (false, true));
    act(&mut view, Action::Sort);
    assert_eq!(order(&mut view), (true, false));
    // left has changed by 2, right has not changed.
    act(&mut view, Action::Sort);
    assert_eq!(order(&mut view), (true, true));
    act(&mut view, Action::Sort);
    assert_eq!(order(&mut view), (true, true));
}

#[test]
fn folded_metrics_have_one_line() {
    let mut view = View::new(Duration::from_secs(1));
    let shown = keys(&mut view, &letters("z"), 10);
    let expected = "
 ● demo ────────────────────────────────────── domain 42 · pid 4711 · 5 metrics
 demo.count                               ▲           14   4 Kbyte/s          █
 demo.level                                2 instances
 demo.text                                ● \"off\"
 demo.broken                               No permission to perform requested o…
 demo.empty                                no values
 ✖ other ───────────────────────────────────────────────────── pid 4711 · ended
   the agent has closed the connection
";
    assert_eq!(shown[..8].join("\n"), expected.trim_matches('\n'));
    // Enter unfolds the instances of a metric, and folds them.
    act(&mut view, Action::Move(2));
    let shown = keys(&mut view, &[KeyCode::Enter], 12);
    assert!(shown[3].starts_with("   left") && shown[4].starts_with("   right"), "{shown:?}");
    let shown = keys(&mut view, &[KeyCode::Down, KeyCode::Left], 12);
    assert!(shown[3].starts_with(" demo.text"), "{shown:?}");
    assert!(selected(&mut view, 12).starts_with(" demo.level"));
    assert!(keys(&mut view, &letters("z"), 12)[2].starts_with("                ▲"));
}

#[test]
fn a_search_finds_metrics_and_instances() {
    let mut view = View::new(Duration::from_secs(1));
    keys(&mut view, &[letters("/t"), vec![KeyCode::Enter]].concat(), 17);
    assert!(selected(&mut view, 17).starts_with(" demo.count"));
    let mut next = |direction| {
        act(&mut view, Action::Next(direction));
        selected(&mut view, 17).trim_start().split(' ').next().unwrap().to_owned()
    };
    for expected in ["left", "right", "demo.text"] {
        assert_eq!(next(Direction::Forward), expected);
    }
    assert_eq!(next(Direction::Backward), "right");
    keys(&mut view, &[letters("/nothing"), vec![KeyCode::Enter]].concat(), 17);
    assert!(selected(&mut view, 17).starts_with("   right"));
}

#[test]
fn help_of_a_metric() {
    let mut view = View::new(Duration::from_secs(1));
    let mut agents = agents();
    screen(&mut view, 80, 17);
    act(&mut view, Action::Move(1));
    act(&mut view, Action::Help);
    assert_eq!(view.needs_help(&agents), Some((0, 0)));
    let shown = screen(&mut view, 80, 17).join("\n");
    assert!(shown.starts_with("demo.count\nWhat it is\n\nPMID       42.0.0\n"), "{shown}");
    assert!(shown.contains("The help has been requested."), "{shown}");
    agents[0].board.set_help(0, "First line.\nSecond line.".to_owned());
    assert_eq!(view.needs_help(&agents), None);
    let shown = screen_of(&mut view, &agents, 80, 17).join("\n");
    assert!(shown.contains("units      Kbyte") && shown.contains("\nFirst line.\nSecond line.\n"), "{shown}");
    act(&mut view, Action::Move(3));
    assert!(screen_of(&mut view, &agents, 80, 17)[0].starts_with("PMID"));
    act(&mut view, Action::Back);
    assert!(screen(&mut view, 80, 17)[0].starts_with(" ● demo"));
}

#[test]
fn history_of_a_value() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 17);
    act(&mut view, Action::Move(4));
    let shown = keys(&mut view, &[KeyCode::Enter], 12);
    assert_eq!(shown[0], " demo.level  left");
    assert_eq!(shown[2], " now 3  -2");
    assert_eq!(shown[4], format!(" 5{}█", " ".repeat(75)));
    assert!(shown[8].starts_with(" 3 ") && shown[8].ends_with("█▁"), "{shown:?}");
    assert_eq!(shown[9], " least 3 · mean 4 · most 5 · the last 2 samples");
    // The next value, after the heading in between. The text is skipped, because a text has no history.
    assert_eq!(keys(&mut view, &[KeyCode::Down], 12)[0], " demo.level  right");
    assert_eq!(keys(&mut view, &[KeyCode::Down], 12)[0], " The value has no history: it is gone, or no number.");
    keys(&mut view, &[KeyCode::Up, KeyCode::Up, KeyCode::Up], 12);
    let shown = keys(&mut view, &[], 12);
    assert_eq!((shown[0].as_str(), shown[2].as_str()), (" demo.count", " now 14  4 Kbyte/s"));
    let shown = keys(&mut view, &letters("r"), 12);
    assert_eq!(
        (shown[2].as_str(), shown[9].as_str()),
        (" now 14  +4", " least 10 · mean 12 · most 14 · the last 2 samples")
    );
    assert!(keys(&mut view, &[KeyCode::Esc], 12)[0].starts_with(" ● demo"));
}

#[test]
fn the_mouse_selects_and_opens() {
    let mut view = View::new(Duration::from_secs(1));
    screen(&mut view, 80, 17);
    // The first line of the screen is its head.
    act(&mut view, Action::Click(5));
    assert!(selected(&mut view, 17).starts_with("   left"));
    act(&mut view, Action::Click(5));
    assert_eq!(screen(&mut view, 80, 17)[0], " demo.level  left");
    act(&mut view, Action::Click(5));
    assert!(screen(&mut view, 80, 17)[0].starts_with(" ● demo"));
    for nowhere in [0, 16, 200] {
        act(&mut view, Action::Click(nowhere));
        assert!(selected(&mut view, 17).starts_with("   left"));
    }
}

/// Recording that stores the commands it receives.
struct Recorded {
    agents: [Agent; 2],
    steered: Vec<Steer>,
}

impl Stage for Recorded {
    fn tick(&mut self) {}

    fn gather(&mut self, _: Duration) -> bool {
        true
    }

    fn ask_help(&mut self, _: usize, _: usize) {}

    fn take_changed(&mut self) -> bool {
        false
    }

    fn agents(&self) -> &[Agent] {
        &self.agents
    }

    fn steer(&mut self, steer: Steer) {
        self.steered.push(steer);
    }
}

#[test]
fn keys_of_a_replay() {
    let mut view = View::new(Duration::from_secs(1));
    let mut stage = Recorded { agents: agents(), steered: Vec::new() };
    let mut press = |view: &mut View, keys: &str| {
        for code in letters(keys) {
            assert!(handle(Event::Key(code.into()), view, &mut stage).unwrap());
        }
        std::mem::take(&mut stage.steered)
    };
    use Steer::{Back, Faster, Forward, Slower};
    assert_eq!(press(&mut view, "<,>.[]"), [Back, Back, Forward, Forward, Slower, Faster]);
    // They are letters of a text.
    assert_eq!(press(&mut view, "/<>"), []);
    assert!(screen(&mut view, 80, 10)[8].starts_with(" search: <>▏ Enter · Esc"));
    view = View::new(Duration::from_secs(1));
    let stamp = Stamp { seconds: 86400 * 365, nanoseconds: 0 };
    view.set_course(Some("back 2x".to_owned()), stamp);
    let terminal = terminal(&mut view, &agents(), 80, 10);
    let head: String = (0..80).map(|x| terminal.backend().buffer()[(x, 0)].symbol()).collect();
    assert!(head.starts_with(" PCP recording ") && head.contains(" back 2x · 197"), "{head}");
    let foot = &screen(&mut view, 80, 10)[8];
    assert!(foot.starts_with(" q quit · space pause · < > back, forward · [ ] speed · ? keys"), "{foot}");
}

#[test]
fn the_keys_fit_on_a_small_terminal() {
    let mut view = View::new(Duration::from_secs(1));
    let shown = keys(&mut view, &letters("?"), 24);
    assert_eq!(shown[21].trim(), keys::KEYS[21]);
    assert!(shown[..22].iter().all(|line| line.chars().count() <= 80 && !line.ends_with('…')), "{shown:?}");
}

#[test]
fn ten_thousand_instances() {
    let mut board = Board::default();
    board.set_metrics(vec![metric(1, "demo.level", Type::I32, Semantics::Instant, Some(0))]);
    let names: Vec<String> = (0..10_000).map(|inst| format!("i{inst:05}")).collect();
    let readings = |inst| reading(Some((inst, &names[inst as usize])), (inst * 7919 % 10_007) as i32);
    board.update(Instant::now(), vec![Ok((0..10_000).map(readings).collect())]);
    let agents = [Agent::idle("demo", Some(domain()), Status::Running, board, None)];
    let mut view = View::new(Duration::from_secs(1));
    screen_of(&mut view, &agents, 80, 10);
    assert!(view.act(Action::Bottom, &agents));
    let shown = screen_of(&mut view, &agents, 80, 10);
    assert!(shown[0].starts_with(" demo.level") && shown[7].starts_with("   i09999"), "{shown:?}");
    assert!(shown[8].ends_with("9995–10002 of 10002"), "{shown:?}");
    // The selected instance stays selected when the order changes.
    for _ in 0..2 {
        assert!(view.act(Action::Sort, &agents));
    }
    let shown = screen_of(&mut view, &agents, 80, 10);
    assert!(shown.iter().any(|line| line.starts_with("   i09999")), "{shown:?}");
    assert!(view.act(Action::Top, &agents));
    let shown = screen_of(&mut view, &agents, 80, 10);
    assert!(shown[2].contains(" 10006 "), "{shown:?}");
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

#[test]
fn a_filter_without_a_hit_says_so() {
    let mut view = View::new(Duration::from_secs(1));
    assert!(view.act(Action::Filter, &agents()));
    "xyzzy".chars().for_each(|c| assert!(view.act(Action::Type(c), &agents())));
    let note = "   No name of a metric or an instance has \"xyzzy\".";
    let all = agents();
    assert_eq!(screen_of(&mut view, &all[..1], 80, 10)[0], note);
    // The agent that has ended is shown.
    let shown = screen(&mut view, 80, 10);
    assert!(shown[1].contains("closed the connection") && shown[2] == note, "{shown:?}");
    assert!(view.act(Action::Cancel, &agents()));
    assert!(!screen(&mut view, 80, 10).iter().any(|line| line.contains("No name")));
}

#[test]
// Slow: 80 widths of the screen are drawn.
fn the_texts_of_a_bar_do_not_touch() {
    for columns in 40..120 {
        let mut view = View::new(Duration::from_secs(1));
        let foot = screen(&mut view, columns, 6).pop().unwrap();
        let (left, right) = foot.split_at(foot.find("1–").unwrap());
        assert!(left.ends_with(' ') && right.contains(" of "), "{columns}: {foot}");
    }
}

/// A locale other than UTF-8 has no bars and lines, and a stranger's letters cannot be shown.
#[test]
fn a_screen_of_ascii() {
    let mut agents = agents();
    agents[1].name = "größe 数".to_owned();
    let mut view = View::new(Duration::from_secs(1));
    let mut terminal = Terminal::new(TestBackend::new(80, 20)).unwrap();
    let drawn = terminal.draw(|frame| {
        view.draw(frame, &agents);
        ascii::replace(frame.buffer_mut());
    });
    let buffer = drawn.unwrap().buffer.clone();
    let lines: Vec<String> = (0..20).map(|y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>()).collect();
    assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("* demo ----")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("x gr??e ? ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains(" ^ ")), "{lines:#?}");
    assert!(lines[19].contains("| ? keys"), "{lines:#?}");
}
