"""The doctor's checks, by subject: each looks at what was seen and says what it finds. Pure."""
