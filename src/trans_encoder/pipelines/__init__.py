"""From what a user has to a run: pairs, text or a task; saved labels; a plan; the team as one scorer."""
