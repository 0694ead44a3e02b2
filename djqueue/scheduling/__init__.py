"""When something is due: crontab, and timetables that say what becomes of missed ticks."""
