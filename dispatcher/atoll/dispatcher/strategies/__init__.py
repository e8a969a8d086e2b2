"""Users' strategies: `budget` asks them from within the core, pure; `installed` loads and times them."""
