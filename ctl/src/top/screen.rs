//! The terminal of `gtctl top`: it is redrawn after each snapshot, each key and each change of its size.

use super::snapshot::{Observation, POLL_EVERY, Snapshot};
use super::view::{self, TopView};
use crate::arguments::SessionOrder;
use crate::status;
use crate::stop_signals::StopSignals;
use gt_protocol::ProtocolError;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Terminal;
use ratatui_core::text::Line;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{cursor, execute};
use std::io::Stdout;
use std::time::{Duration, Instant};

const KEYS: &str = "q quit  s sort  / filter  f freeze  enter details  k kill  arrows select";
/// The operations in the details of a session.
const OPERATIONS_SHOWN: usize = 20;

/// A failure of the terminal or of the daemon.
#[derive(Debug)]
pub enum ScreenError {
    /// The terminal's.
    Terminal(std::io::Error),
    /// The daemon's.
    Daemon(ProtocolError),
}

impl From<std::io::Error> for ScreenError {
    fn from(error: std::io::Error) -> ScreenError {
        ScreenError::Terminal(error)
    }
}

impl From<ProtocolError> for ScreenError {
    fn from(error: ProtocolError) -> ScreenError {
        ScreenError::Daemon(error)
    }
}

/// Restores the terminal when it is dropped.
struct RawTerminal;

impl RawTerminal {
    fn enter() -> std::io::Result<RawTerminal> {
        enable_raw_mode()?;
        let raw = RawTerminal;
        execute!(std::io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(raw)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

/// The subject of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum KeyMode {
    /// The list of sessions.
    #[default]
    List,
    /// The text of the filter.
    Filter,
    /// The details of a session.
    Details(u64),
    /// The question whether to kill a session.
    Kill(u64),
}

struct Screen {
    view: TopView,
    mode: KeyMode,
    snapshot: Snapshot,
    /// The details of a session, as lines.
    details: Vec<String>,
    /// The outcome of the last command.
    message: Option<String>,
    is_over: bool,
}

/// Shows the daemon until the user ends it, or one of the signals in `stop` comes.
///
/// # Errors
/// The terminal cannot be used, or the daemon ends.
pub fn run(
    observation: &mut Observation,
    sort: SessionOrder,
    delay: Duration,
    stop: Option<&StopSignals>,
) -> Result<(), ScreenError> {
    let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let view = TopView { sort, has_colors, ..TopView::default() };
    let snapshot = observation.snapshot()?;
    let (details, mode) = (Vec::new(), KeyMode::List);
    let mut screen = Screen { view, mode, snapshot, details, message: None, is_over: false };
    let _raw = RawTerminal::enter()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(std::io::stdout()))?;
    let mut drawn = Instant::now();
    screen.draw(&mut terminal)?;
    while !screen.is_over && !stop.is_some_and(StopSignals::have_come) {
        let has_event = event::poll(POLL_EVERY)?;
        observation.read();
        if has_event {
            screen.handle(&event::read()?, observation)?;
        } else if drawn.elapsed() < delay {
            continue;
        }
        if drawn.elapsed() >= delay {
            drawn = Instant::now();
            // A frozen screen stays; the daemon is asked all the same, so that its end is noticed.
            let snapshot = observation.snapshot()?;
            if !screen.view.is_frozen {
                screen.snapshot = snapshot;
            }
        }
        screen.draw(&mut terminal)?;
    }
    Ok(())
}

impl Screen {
    fn draw(&self, terminal: &mut Terminal<CrosstermBackend<Stdout>>) -> std::io::Result<()> {
        terminal.draw(|frame| {
            let area = frame.area();
            self.render(area, frame.buffer_mut());
        })?;
        Ok(())
    }

    fn render(&self, area: Rect, buffer: &mut Buffer) {
        let lines = match self.mode {
            KeyMode::Details(_) => self.details.iter().map(|line| Line::raw(line.clone())).collect(),
            _ => view::lines(&self.snapshot, &self.view, area.width),
        };
        for (line, y) in lines.iter().zip(area.top()..area.bottom().saturating_sub(1)) {
            buffer.set_line(area.left(), y, line, area.width);
        }
        let last = match (&self.mode, &self.message) {
            (KeyMode::Filter, _) => format!("filter: {}_  (enter keeps it, esc clears it)", self.view.filter),
            (KeyMode::Kill(session), _) => format!("End session {session} of {}? y/n", self.owner(*session)),
            (_, Some(message)) => message.clone(),
            (KeyMode::Details(_), _) => "esc back  k kill".into(),
            _ => KEYS.into(),
        };
        if area.height > 0 {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            let line = Line::styled(format!("{last:<width$}", width = usize::from(area.width)), style);
            buffer.set_line(area.left(), area.bottom() - 1, &line, area.width);
        }
    }

    fn owner(&self, session: u64) -> String {
        let row = self.snapshot.sessions.iter().find(|row| row.status.id == session);
        row.map_or_else(String::new, |row| {
            format!("{}, process {}", row.status.user.clone().unwrap_or_default(), row.status.pid)
        })
    }

    fn handle(&mut self, event: &Event, observation: &Observation) -> Result<(), ScreenError> {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return Ok(()) };
        self.message = None;
        if modifiers.contains(KeyModifiers::CONTROL) && *code == KeyCode::Char('c') {
            self.is_over = true;
            return Ok(());
        }
        match self.mode.clone() {
            KeyMode::Filter => match code {
                KeyCode::Enter => self.mode = KeyMode::List,
                KeyCode::Esc => {
                    self.view.filter.clear();
                    self.mode = KeyMode::List;
                }
                KeyCode::Backspace => drop(self.view.filter.pop()),
                KeyCode::Char(letter) => self.view.filter.push(*letter),
                _ => {}
            },
            KeyMode::Kill(session) => {
                if matches!(code, KeyCode::Char('y' | 'Y')) {
                    self.message = Some(match gt_protocol::ask_kill(&observation.daemon().socket, session) {
                        Ok(_) => format!("session {session} was ended"),
                        Err(error @ ProtocolError::HungUp) => return Err(error.into()),
                        Err(error) => error.to_string(),
                    });
                }
                self.mode = KeyMode::List;
            }
            KeyMode::Details(session) => match code {
                KeyCode::Char('k') => self.mode = KeyMode::Kill(session),
                KeyCode::Char('q') => self.is_over = true,
                KeyCode::Esc | KeyCode::Enter | KeyCode::Left => self.mode = KeyMode::List,
                _ => {}
            },
            KeyMode::List => match code {
                KeyCode::Char('q') | KeyCode::Esc => self.is_over = true,
                KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
                KeyCode::Char('/') => self.mode = KeyMode::Filter,
                KeyCode::Char('f' | ' ') => self.view.is_frozen = !self.view.is_frozen,
                KeyCode::Down | KeyCode::Char('j') => self.select(1),
                KeyCode::Up => self.select(-1),
                KeyCode::Enter | KeyCode::Char('k') => {
                    self.select(0);
                    let Some(session) = self.view.selected else {
                        self.message = Some("no session is shown".into());
                        return Ok(());
                    };
                    if *code == KeyCode::Enter {
                        return self.show_details(session, observation);
                    }
                    self.mode = KeyMode::Kill(session);
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// Selects the session that is `step` rows below the selected one, or the first one.
    fn select(&mut self, step: isize) {
        let ids: Vec<u64> = view::shown(&self.snapshot, &self.view).iter().map(|row| row.status.id).collect();
        let position = ids.iter().position(|id| Some(*id) == self.view.selected);
        let next = position.map_or(0, |position| position.saturating_add_signed(step).min(ids.len() - 1));
        self.view.selected = ids.get(next).copied();
    }

    fn show_details(&mut self, session: u64, observation: &Observation) -> Result<(), ScreenError> {
        match gt_protocol::ask_session(&observation.daemon().socket, session) {
            Ok(mut detail) => {
                status::name_user(&mut detail.session);
                let row = self.snapshot.sessions.iter().find(|row| row.status.id == session);
                let operations = row.map(|row| view::operations(row, OPERATIONS_SHOWN)).unwrap_or_default();
                let text = format!("{}\n{operations}", status::session(&detail, status::now()));
                self.details = text.lines().map(Into::into).collect();
                self.mode = KeyMode::Details(session);
            }
            Err(error @ ProtocolError::HungUp) => return Err(error.into()),
            Err(error) => self.message = Some(error.to_string()),
        }
        Ok(())
    }
}
