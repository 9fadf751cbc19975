"""What compare.py and start.py share: contestants, rounds, figures, reports."""
