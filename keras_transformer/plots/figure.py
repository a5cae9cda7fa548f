"""What all pictures share: the figure, its axes, colours and letters.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; maps are one hue, light to dark.
"""

import textwrap
from pathlib import PurePath

SUFFIXES = (".png", ".svg", ".pdf")
BLUE, SKY, ORANGE = "#0072B2", "#56B4E9", "#D55E00"
DPI = 150
NUMBER = "{x:,.10g}"  # 20,000 and 0.0005
CHARACTERS_AN_INCH, TITLE_LINES = 10, 4  # of a title, and its most lines
BOX = "□"  # instead of a letter


def new_figure(width, height, title=""):
    """An empty figure; `width` and `height` are in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install -e ".[plots]"') from error
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    if title:
        characters = int(width * CHARACTERS_AN_INCH)
        lines = textwrap.wrap(renderable(title), characters, max_lines=TITLE_LINES, placeholder=" …")
        figure.suptitle("\n".join(lines), fontsize=12, parse_math=False)
    return figure


def save(figure, path):
    """Saves a figure in the format that its name says, or else as PNG: `path` may be a file without a name."""
    _explain_boxes(figure)
    suffix = PurePath(path).suffix.lower() if isinstance(path, str | PurePath) else ""
    figure.savefig(path, format=suffix[1:] if suffix in SUFFIXES else "png")


def new_axes(figure, place, title, across):
    """Axes for curves and bars. The title names the vertical axis."""
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot(*place)
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(across)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(NUMBER)
    axes.xaxis.set_major_formatter(NUMBER)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return axes


def logarithmic(axes):
    """Makes the vertical axis logarithmic, with ordinary numbers on it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(NUMBER)
    axes.yaxis.set_minor_formatter(NullFormatter())


def renderable(text):
    """The text with a box for every character that matplotlib's fonts (`font.family` of its settings) do not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = [get_font(findfont(FontProperties(family=[family]))) for family in FontProperties().get_family()]
    known = [font.get_charmap() for font in fonts]
    return "".join(c if c.isprintable() and any(ord(c) in glyphs for glyphs in known) else BOX for c in text)


def _explain_boxes(figure):
    """Adds a line at the bottom that explains the boxes, where there are any."""
    from matplotlib.text import Text

    if any(BOX in text.get_text() for text in figure.findobj(Text)):
        lines = [figure.get_supxlabel(), f"{BOX}: not in matplotlib's font.family"]
        figure.supxlabel("\n".join(filter(None, lines)), fontsize=9)
