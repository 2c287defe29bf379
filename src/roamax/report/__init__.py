"""Tables, figures, and the HTML page that shows them: one file, no network."""
