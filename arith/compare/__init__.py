"""Which grids may stand side by side, as data without figures. Never imports torch.

panels.py       select the grids of a comparison, or say which command makes missing ones
select.py       choose among runs of different settings, and name those left out
leaderboard.py  rank encodings and test their differences
curves.py report.py catalogue.py    the content of `curves`, `report` and `list`
order.py words.py    order of panels; a grid in a line, the path of a figure
"""
